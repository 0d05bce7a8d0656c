"""`iscsitrace events`: its lines and its document, from recordings of kernels with a known fault."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.wording.event_kinds import SEVERITY_OF
from tests.support import tshark
from tests.support.capture_file import write_pcap
from tests.support.recordings import captures_folder
from tests.support.transport import ETHERNET

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"
ERRORS = VECTORS / "storage-errors-lio" / "initiator.pcapng.gz"
RESTART = VECTORS / "target-restart-lio" / "initiator.pcapng.gz"


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["events", *(str(each) for each in arguments)])
    assert result.exit_code == code, result.output
    return result


def document(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("--json", *arguments).output)
    return found


def lines(*arguments: object) -> list[str]:
    return run(*arguments).output.splitlines()


def test_a_line_has_time_severity_place_text_length_and_frame() -> None:
    head, columns, *rows, display_filter = lines(RESTART, "--severity", "warning")
    assert head == "time: s after the first packet, 2026-11-22T21:31:42.641265053Z"
    assert re.split(r"\s{2,}", columns.strip()) == ["time", "severity", "session", "stream", "LUN", "event", "frame"]
    assert [re.split(r"\s{2,}", row.strip()) for row in rows] == [
        ["10.541377", "warning", "1", "1", "-", "the target closed the connection", "454"],
        ["10.553511", "error", "1", "-", "-", "outage: no I/O completes (6.1 s)", "-"],
        [
            *("13.567357", "error", "2", "2", "-"),
            "login to iqn.2025-01.org.iscsitrace:disk refused: service unavailable (0301h)",
            "465",
        ],
    ]
    assert display_filter == "Display filter: frame.number in {454, 465}"


def test_equal_events_are_one_line_unless_all_are_asked_for() -> None:
    folded = [line for line in lines(ERRORS, "--kind", "check_condition", "--severity", "error") if " error " in line]
    every = [
        line for line in lines(ERRORS, "--kind", "check_condition", "--severity", "error", "--all") if " error " in line
    ]
    statuses = tshark.frame_numbers(ERRORS, "scsi.sns.key == 2", *tshark.REASSEMBLE)
    assert len(every) == len(statuses) > 200
    counts = [int(count) for line in folded for count in re.findall(r"\((\d+) times until [\d.]+\)", line)]
    single = sum(" times until " not in line for line in folded)
    assert sum(counts) + single == len(every)
    assert len(folded) < 10
    # the time of the last is that of the last line of all
    assert re.search(r"until ([\d.]+)\)", folded[-1])[1] == every[-1].split()[0]  # type: ignore[index]


def test_a_long_filter_is_cut_and_says_so() -> None:
    last = lines(ERRORS, "--all")[-1]
    head, frames = re.fullmatch(r"Display filter( .*): frame\.number in {(.*)}", last).groups()  # type: ignore[union-attr]
    assert head == f" of the first 200 of {len(document(ERRORS)['events']):,} frames"
    assert len(frames.split(", ")) == 200


def test_dates() -> None:
    rows = lines(RESTART, "--absolute", "--kind", "login_refused")
    assert rows[0] == "time: UTC"
    # 13.567357 s after 21:31:42.641265053
    assert re.match(r"2026-11-22T21:31:56\.2086\d{5}Z  error ", rows[2])


def test_the_document_has_every_event_of_the_table_with_a_filter() -> None:
    told = document(ERRORS)
    rows = list(iscsitrace.read(ERRORS, tables=["events"]).events.rows())
    assert [{name: row[name] for name in row if name != "display_filter"} for row in told["events"]] == rows
    assert {"schema", "tool", "input", "options", "events"} == set(told)


def test_every_filter_of_the_document_finds_packets() -> None:
    rows = document(RESTART)["events"]
    found = tshark.frames_of(RESTART, (row["display_filter"] for row in rows))
    for row in rows:
        frames = found[row["display_filter"]]
        assert frames == [row["frame"]] if row["frame"] is not None else len(frames) > 0
    assert any(row["frame"] is None for row in rows)


@pytest.mark.parametrize(
    ("options", "name", "values"),
    [
        (("--session", 2), "session", {2}),
        (("--lun", 0), "lun", {0}),
        (("--kind", "login", "--kind", "relogin"), "kind", {"login", "relogin"}),
        (("--severity", "error"), "severity", {"error"}),
        (("--severity", "warning"), "severity", {"warning", "error"}),
    ],
)
def test_filters(options: tuple[object, ...], name: str, values: set[Any]) -> None:
    assert {row[name] for row in document(*options, RESTART)["events"]} == values


def test_nothing_to_show() -> None:
    assert lines("--session", 99, RESTART) == ["no events"]
    assert document("--session", 99, RESTART)["events"] == []


def test_an_unknown_kind_names_those_that_exist() -> None:
    result = CliRunner().invoke(main, ["events", "--kind", "explosion", str(RESTART)])
    assert result.exit_code == 2
    assert all(kind in result.output for kind in SEVERITY_OF)


def test_forty_conflicts_are_one_line() -> None:
    file = captures_folder() / "25_reservation_conflict.pcap.gz"
    if not file.exists():
        pytest.skip("recorded captures are not there: ISCSITRACE_CAPTURES")
    rows = lines("--severity", "error", file)
    assert "WRITE: RESERVATION CONFLICT (40 times until 9.253741)" in rows[2]
    assert len(rows) == 4


def test_an_event_of_a_capture_without_packets_has_the_time_zero(tmp_path: Path) -> None:
    file = tmp_path / "cut.pcap.gz"
    file.write_bytes(gzip.compress(write_pcap(tmp_path / "none.pcap", [], ETHERNET).read_bytes())[:-4])
    # no iSCSI is in it
    (row,) = json.loads(run(file, "--json", code=4).stdout)["events"]
    assert (row["kind"], row["time_ns"], row["end_ns"]) == ("capture_incomplete", 0, None)
    assert run(file, code=4).stdout.splitlines()[-1].split()[0] == "0.000000"


def test_a_reset_by_a_device_is_not_called_the_targets() -> None:
    """A RST with another TTL than the target's packets, of which some came after it."""
    file = captures_folder() / "protocol" / "x28_rst_from_a_firewall.pcapng"
    if not file.exists():
        pytest.skip("recorded captures are not there: ISCSITRACE_CAPTURES")
    said = "\n".join(lines(file))
    assert "a device between the hosts reset the connection in the target's name" in said
    assert "the target reset" not in said
