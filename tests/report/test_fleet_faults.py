"""Three taps, five hundred sessions, six faults: the faults are the first six rows of the report, the worst first."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.fleet.run import TABLES
from iscsitrace.fleet.sql import Database
from iscsitrace.fleet.top import Broken, broken_sessions, failure_command
from iscsitrace.report.fleet import describe
from tests.support import rings
from tests.support.capture_file import Record, read_records, write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.pdu import Task
from tests.support.transport import Packet

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
START_NS = rings.MIDNIGHT_NS + 600_000_000_000
RESERVATION_CONFLICT = 0x18
FAULTS = {
    "a": {"black-out-and-relogin": "io_outage", "task-abort-storage-hang": "task_timeout"},
    "b": {"chap-refused-then-accepted": "login_failed", "medium-error": "command_errors"},
    "c": {"login-not-authorized": "login_failed"},
}
"""By tap the samples with a fault, and the finding that tells it. The sixth fault is a reserved logical unit, at c."""
HEALTHY = {"a": 164, "b": 164, "c": 165}
"""Sessions in which nothing breaks; the samples have six, of which two are one story, and the reserved unit one."""


def healthy(seed: int, count: int, *, has_conflicts: bool) -> list[Packet]:
    """Sessions of a few reads and writes, one after another; the last of them meets a reservation, if it is to."""
    conversation = Conversation(seed=seed, start_ns=START_NS)
    for number in range(count + has_conflicts):
        status = RESERVATION_CONFLICT if number == count else 0
        tasks = [Task(("read", "write")[place % 2], lba=8 * place, block_count=16, status=status) for place in range(4)]
        conversation.session(Session()).login().tasks(tasks, queue_depth=1).logout()
    return conversation.run().packets


def shifted(sample: str) -> list[Record]:
    """The packets of a sample from a second after the start on."""
    records, _ = read_records(next((SAMPLES / sample).glob("capture.*")))
    later_ns = START_NS + 1_000_000_000 - records[0].time_ns
    return [replace(record, time_ns=record.time_ns + later_ns) for record in records]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    for seed, (tap, count) in enumerate(HEALTHY.items(), 1):
        packets: list[Packet | Record] = [*healthy(seed, count, has_conflicts=tap == "c")]
        for sample in FAULTS[tap]:
            packets += shifted(sample)
        packets.sort(key=lambda each: each.time_ns)
        (folder / tap).mkdir()
        for number in range(6):
            part = packets[number * len(packets) // 6 : (number + 1) * len(packets) // 6]
            write_pcapng(folder / tap / f"eth0_{number + 1:05}_20231115001000.pcapng", part, rings.LINK_TYPE)
        rings.read_ring(folder / "data", folder / tap, tap=tap, tables=TABLES)
    return folder / "data"


@pytest.fixture(scope="module")
def found(dataset: Path) -> list[Broken]:
    with Database(dataset) as database:
        return broken_sessions(database)


def test_the_six_faults_are_the_first_six_rows_and_the_worst_is_first(found: list[Broken], dataset: Path) -> None:
    with Database(dataset) as database:
        ((sessions,),) = database.query("SELECT count(*) FROM sessions").rows
    assert sessions >= 500
    expected = [(tap, finding) for tap, faults in FAULTS.items() for finding in faults.values()]
    expected.append(("c", "reservation_conflict"))
    assert sorted((each.tap, each.finding) for each in found[:6]) == sorted(expected)
    assert found[6:] == []
    assert (found[0].tap, found[0].finding) == ("a", "io_outage")
    lost = [each.lost_ns for each in found if each.has_failed]
    assert lost == sorted(lost, reverse=True)


def test_each_leads_to_the_frames_that_show_it_and_a_command_that_finds_it(found: list[Broken]) -> None:
    for each in found:
        assert each.frames, each
        assert Path(each.path).name == each.capture
        arguments = failure_command(each)
        result = CliRunner().invoke(main, list(arguments[1:]))
        assert result.exit_code == 0, result.output


def test_the_page_shows_them_and_where_the_time_goes(found: list[Broken], dataset: Path, tmp_path: Path) -> None:
    document = describe(dataset)
    first = document.sections[0]
    assert [row[1] for row in first.grids[0].rows] == [each.tap for each in found]
    assert [row[4] for row in first.grids[1].rows] == [shlex.join(failure_command(each)) for each in found]
    page = tmp_path / "fleet.html"
    result = CliRunner().invoke(main, ["fleet", "report", str(dataset), "-o", str(page)])
    assert result.exit_code == 0, result.output
    for by in ("volume", "initiator", "target", "hour"):
        shown = CliRunner().invoke(main, ["fleet", "top", str(dataset), "--by", by, "--cost", "outage"])
        assert shown.exit_code == 0, shown.output
        assert "lost s" in shown.output
