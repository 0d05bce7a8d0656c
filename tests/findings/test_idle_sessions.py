"""The notes discovery_only and no_io: on traces by hand, and on captures."""

from __future__ import annotations

from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from tests.support.histories import Told
from tests.support.recordings import captures_folder
from tests.support.story import SECOND, Story


def found(diagnosis: Diagnosis, name: str) -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == name]
    return findings[0] if findings else None


def discovery(text: str | None) -> Told:
    """A discovery session; ``text`` is the answer to SendTargets."""
    told = Told()
    told.session(0, 0.1, session_type="discovery", target_name=None, end="reset", rst_to_target_ns=0.1)
    if text is not None:
        row = {"connection": 0, "response_frame": 7, "request_text": "SendTargets=All", "response_text": text}
        told.rows["texts"].append(row)
    return told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "TargetName=iqn.a TargetAddress=10.0.0.2:3260,1 TargetAddress=10.0.0.3:3260,1",
            "SendTargets listed 1 target with 2 portals (iqn.a)",
        ),
        (
            "TargetName=iqn.a TargetName=iqn.b TargetName=iqn.c TargetName=iqn.d",
            "SendTargets listed 4 targets (iqn.a, iqn.b, iqn.c, ...)",
        ),
        ("", "SendTargets listed no target"),
        (None, "the capture has no SendTargets"),
    ],
)
def test_discovery_says_what_it_listed_and_what_ended_it(text: str | None, words: str) -> None:
    diagnosis = discovery(text).diagnosis()
    finding = found(diagnosis, "discovery_only")
    assert finding
    assert finding.text.startswith(f"Session 0: discovery only, {words}")
    assert finding.text.endswith(" The initiator reset the connection at 0.10 s, without a logout.")
    assert (finding.severity, finding.leads) == ("info", False)
    assert diagnosis.headline
    assert diagnosis.headline.name == "discovery_only"


def test_a_session_after_the_discovery_is_more_than_discovery() -> None:
    told = discovery("TargetName=iqn.a")
    told.session(1, 20)
    told.reads(1, 2, 20)
    diagnosis = told.diagnosis()
    assert found(diagnosis, "discovery_only") is None
    # of another host: that one's discovery is still all that it did
    told.rows["connections"][1]["initiator_address"] = "10.0.0.9"
    assert found(told.diagnosis(), "discovery_only")


ENDS: list[tuple[dict[str, Any], str]] = [
    ({"end": "open"}, "It was open at the end of the capture."),
    ({"end": "logout"}, "The initiator logged out at 3.00 s."),
    ({"end": "closed", "fin_to_initiator_ns": 3.0}, "The target closed the connection at 3.00 s, without a logout."),
]


@pytest.mark.parametrize(("columns", "words"), ENDS)
def test_a_session_without_commands_says_what_ended_it(columns: dict[str, Any], words: str) -> None:
    told = Told()
    told.session(0, 5, **columns)
    if columns["end"] == "logout":
        told.add("logouts", connection=0, request_ns=3.0, request_frame=9)
    diagnosis = told.diagnosis()
    finding = found(diagnosis, "no_io")
    assert finding
    assert finding.text == f"Session 0: no SCSI commands. {words}"
    assert diagnosis.headline
    assert (diagnosis.headline.name, diagnosis.headline.text) == ("no_io", finding.text)


def test_a_login_whose_status_is_cut_off_may_have_failed() -> None:
    told = Told()
    told.session(0, 5, **ENDS[-1][0])
    told.rows["logins"][-1] |= {"status_class": None, "status_detail": None, "is_transit": False}
    finding = found(told.diagnosis(), "no_io")
    assert finding
    assert finding.text == (
        "Session 0: no SCSI commands. The capture does not show whether it was logged in: the snaplen cut off the "
        f"status of its Login Response. {ENDS[-1][1]}"
    )


def test_a_scan_alone_is_no_io() -> None:
    told = Told()
    told.session(0, 5)
    for number in range(3):
        told.read(0, number * 0.1, number * 0.1 + 0.01, operation="inquiry", is_read=False)
    finding = found(told.diagnosis(), "no_io")
    assert finding
    assert finding.text.startswith("Session 0: no reads or writes, only 3 commands of a device scan (INQUIRY). It was")


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"gap_bytes_to_target": 48},
        {"missing_pdu_count_to_initiator": 1},
        {"end": "refused", "login_status": 0x0203},
    ],
)
def test_near_misses(columns: dict[str, Any]) -> None:
    """Reads; commands may be missing from the capture; a login that failed."""
    told = Told()
    told.session(0, 5, **columns)
    if not columns:
        told.reads(0, 1, 1)
    if "login_status" in columns:
        told.login(0.01, 0, 2, 3)
    assert found(told.diagnosis(), "no_io") is None


def test_a_capture_of_a_discovery() -> None:
    file = captures_folder() / "16_discovery_sendtargets.pcapng"
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    diagnosis = examine(iscsitrace.read(file, tables=NEEDED).table)
    assert diagnosis.headline
    assert diagnosis.headline.name == "discovery_only"
    # by its TargetName and TargetAddress keys
    assert "listed 3 targets with 4 portals" in diagnosis.headline.text


def moving(*lengths_ns: int, operation: str = "move_medium", **columns: Any) -> Story:
    """The scan of a media changer, then robot moves, or other commands that move no data."""
    story = Story().tasks(3, ("target_service", 1_000_000), operation="inquiry", data_bytes=0)
    for length_ns in lengths_ns:
        story.task(("target_service", length_ns), operation=operation, data_bytes=0, bytes=0, **columns)
    return story


def test_the_work_of_a_tape_library_is_named_with_count_and_time() -> None:
    opinion = moving(*(seconds * SECOND for seconds in (12, 30, 18))).opinion()
    assert (opinion.headline.name, opinion.headline.kind) == ("none", "healthy")
    assert opinion.headline.text == (
        "Session 0 is healthy. 3 MOVE MEDIUM commands took 12.0 s to 30.0 s (60.0 s in all). Nothing was read or "
        "written."
    )
    assert "no_io" not in {finding.name for finding in opinion.findings}


@pytest.mark.parametrize(
    "story",
    [moving(990_000_000), moving(12 * SECOND, status=2, sense_key=4, asc=0x15, ascq=1)],
    ids=["below a second", "a move that failed"],
)
def test_short_or_failed_moves_are_no_work(story: Story) -> None:
    headline = story.opinion().headline
    assert headline.kind == "unknown"
    assert "is healthy" not in headline.text


def test_a_move_that_failed_beside_one_that_did_not_is_not_healthy() -> None:
    story = moving(12 * SECOND)
    story.task(("target_service", SECOND), operation="move_medium", data_bytes=0, status=2, sense_key=4, asc=0x15)
    assert story.opinion().headline.kind != "healthy"


def test_long_commands_beside_reads_and_writes() -> None:
    near = Story(rtt_to_target_ns=200_000)
    reads = near.tasks(20, ("transfer", 1_000_000)).task(("target_service", 40 * SECOND), operation="rewind", bytes=0)
    headline = reads.opinion().headline
    assert headline.kind == "healthy"
    assert headline.text.endswith(" Beside I/O, 1 REWIND command took 40.0 s.")
