"""Every problem of the registry: a capture that shows it, a near miss that does not, a page, and an example sentence.

The problems that settings of a simulated run cause are in test_diagnosis_captures.py; here are all others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.findings import NEEDED
from iscsitrace.findings.recipes import WAN
from tests.findings.test_diagnosis_captures import simulate
from tests.support.breaches import immediate_data
from tests.support.capture_file import read_records, thin, write_pcapng
from tests.support.conversation import Actors, Conversation, Session
from tests.support.examples import all_findings, assert_is_example
from tests.support.pdu import Task
from tests.support.scan import Said, scan
from tests.support.transport import Path as TransportPath

ROOT = Path(__file__).resolve().parents[2]
Source = str | Path | Callable[[Path], Path]
"""Options of ``simulate``, a recording, or a function that writes a capture into a folder."""

NAA = "naa.6001405c86130259b4c4d2a9b1b0008a"


def recorded(name: str) -> Path:
    return ROOT / "tests" / "vectors" / "guests" / name / "initiator.pcapng.gz"


def talk(say: Callable[[Actors], object], settings: Session | None = None, one_way_ns: int = 500_000) -> Source:
    """A session of a conversation by hand."""

    def write(folder: Path) -> Path:
        conversation = Conversation(TransportPath(one_way_delay_ns=one_way_ns))
        say(conversation.session(settings))
        capture = conversation.run()
        return write_pcapng(folder / "talk.pcapng", capture.packets, capture.path.link_type)

    return write


def pinging(one_way_ns: int) -> Source:
    return talk(lambda actors: actors.login().read(count=2).nop().logout(), one_way_ns=one_way_ns)


def sharing(blocks: tuple[int, int]) -> Source:
    """Two connections take commands of these sizes in turn."""
    tasks = [Task("read", number * 256, blocks[number % 2], 0) for number in range(40)]
    return talk(
        lambda actors: actors.login().tasks(tasks, queue_depth=4).logout(), settings=Session(connection_count=2)
    )


def two_paths(busy: int) -> Source:
    """One logical unit behind two targets, LUN 3 and LUN 5, of which the first is optimized; reads go over one."""

    def write(folder: Path) -> Path:
        conversation = Conversation()
        states = {1: "active_optimized", 2: "active_non_optimized"}
        for path, lun in enumerate((3, 5)):
            names = {
                "InitiatorName": "iqn.2024-01.example.initiator:0",
                "TargetName": f"iqn.2024-01.example.target:{path}",
            }
            found = scan(lun, naa=NAA, group=path + 1, states=states)
            actors = conversation.session().login(texts=names).tasks(found)
            if path == busy:
                actors.read(count=200, lun=lun)
            else:
                actors.pause(500_000_000).tasks([Task("test_unit_ready", lun=lun)])
            actors.logout()
        capture = conversation.run()
        return write_pcapng(folder / "paths.pcapng", capture.packets, capture.path.link_type)

    return write


def thinned(share: float) -> Source:
    def write(folder: Path) -> Path:
        assert simulate(folder / "run", f"read --bytes 8M {WAN}").exit_code == 0
        records, link_type = read_records(folder / "run" / "initiator.pcapng")
        return write_pcapng(folder / "thin.pcapng", thin(records, share, 1), link_type)

    return write


def sectors_of_4096(first_lba: int) -> Source:
    """Reads of 4 KiB of a disk with sectors of 4 KiB and blocks of 512 bytes, from a block on."""
    # READ CAPACITY(16): the last block, the block length, 2 ** 3 logical blocks in a physical one
    answer = struct.pack("!QIBB", (1 << 20) - 1, 512, 0, 3) + bytes(18)
    command = bytes([0x9E, 0x10]) + bytes(8) + struct.pack("!I", len(answer)) + bytes(2)
    tasks: list[Task] = [Said("read_capacity", command=command, answer=answer)]
    tasks += [Task("read", first_lba + 8 * number, 8) for number in range(20)]
    return talk(lambda actors: actors.login().tasks(tasks).logout())


def of_luns(service_ms: int) -> Source:
    """Reads of two logical units in turn; one takes this time, the other 1 ms."""
    times = {0: 1_000_000, 1: service_ms * 1_000_000}
    tasks = [Task("read", number, 8, lun, service_ns=times[lun]) for number in range(20) for lun in times]
    return talk(lambda actors: actors.login().tasks(tasks).logout())


def discovering(*, goes_on: bool) -> Source:
    def write(folder: Path) -> Path:
        conversation = Conversation()
        conversation.session().login(texts={"SessionType": "Discovery"}).logout()
        if goes_on:
            conversation.session().login().read(count=20).logout()
        capture = conversation.run()
        return write_pcapng(folder / "talk.pcapng", capture.packets, capture.path.link_type)

    return write


OTHERS: dict[str, tuple[Source, Source]] = {
    # another portal than that of the session, or the one that comes back after the session was lost
    "portal_unreachable": (recorded("unreachable-portal-lio"), recorded("target-restart-lio")),
    "duplicate_initiator": (recorded("duplicate-initiator-lio"), recorded("target-restart-lio")),
    "discovery_only": (discovering(goes_on=False), discovering(goes_on=True)),
    "no_io": (
        talk(lambda actors: actors.login().tasks(scan()).logout()),
        talk(lambda actors: actors.login().tasks(scan()).read(count=2).logout()),
    ),
    "reservation_conflict": (recorded("reservation-held-lio"), recorded("storage-errors-lio")),
    "task_timeout": (recorded("stuck-command-lio"), recorded("lun-reset-lio")),
    "task_aborts": (recorded("lun-reset-lio"), recorded("target-paused-tgt")),
    "slow_lun": (of_luns(20), of_luns(4)),
    "unaligned_io": (sectors_of_4096(1), sectors_of_4096(8)),
    "nop_timeout": (pinging(2_510_000_000), pinging(2_490_000_000)),
    "uneven_connections": (sharing((256, 32)), sharing((128, 128))),
    "path_imbalance": (two_paths(1), two_paths(0)),
    "capture_poor": (thinned(0.05), thinned(0.002)),
    "protocol_violation": (
        lambda folder: immediate_data(folder, is_agreed=False),
        lambda folder: immediate_data(folder, is_agreed=True),
    ),
}


def diagnosed(source: Source, folder: Path) -> Diagnosis:
    if isinstance(source, str):
        simulate(folder, source)
        file = folder / "initiator.pcapng"
    else:
        folder.mkdir()
        file = source if isinstance(source, Path) else source(folder)
    return examine(iscsitrace.read(file, tables=NEEDED).table)


@pytest.mark.parametrize("name", OTHERS)
def test_a_capture_shows_it_and_a_near_miss_does_not(name: str, tmp_path: Path) -> None:
    """In a near miss it is at most a note."""
    shown, missed = OTHERS[name]
    assert_is_example(diagnosed(shown, tmp_path / "shown"), name)
    notes = PROBLEMS[name].rank == "note"
    near = [each for each in all_findings(diagnosed(missed, tmp_path / "missed")) if each.name == name]
    assert not [each for each in near if notes or each.severity != "info"]


def test_two_paths_are_one_volume(tmp_path: Path) -> None:
    (volume,) = diagnosed(two_paths(1), tmp_path / "paths").volumes
    assert (volume.luns, len(volume.paths), volume.identity) == ((3, 5), 2, NAA)


def test_every_problem_has_a_capture_a_near_miss_and_an_example() -> None:
    by_options = {each.name for each in PROBLEMS.values() if each.shown_by and each.near_miss != each.shown_by}
    assert not by_options & set(OTHERS)
    assert by_options | set(OTHERS) == set(PROBLEMS)
    assert all(shown != missed for shown, missed in OTHERS.values())


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_has_its_page(name: str) -> None:
    page = (ROOT / "docs" / "diagnosis.md").read_text()
    assert page.count(f"\n### {name}\n") == 1
    part = page.split(f"\n### {name}\n")[1].split("\n### ")[0]
    assert PROBLEMS[name].meaning in part
    assert f"\n- **Example**: {PROBLEMS[name].example}\n" in part
