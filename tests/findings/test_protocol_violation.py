"""The finding protocol_violation, and violations as causes: by hand, and on captures with a known fault."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace._core import login_keys
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from tests.support.histories import SECOND, Told, at
from tests.support.recordings import captures_folder

NAME: Final = "protocol_violation"


def found(diagnosis: Diagnosis, name: str = NAME) -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == name]
    return findings[0] if findings else None


def breach(told: Told, rule: str, side: str, seconds: float, *, connection: int = 0, **columns: Any) -> None:
    frame = told._next_frame()
    row: dict[str, Any] = {"rule": rule, "side": side, "connection": connection, "time_ns": seconds, "count": 1}
    told.add("violations", **row | {"frame": frame, "last_frame": frame} | columns)


def working() -> Told:
    """Reads for 100 ms of a session that goes on."""
    told = Told()
    told.session(0, 20)
    told.reads(0, 0.0, 20)
    return told


def lost(at_s: float = 0.5, by: str = "initiator") -> Told:
    """Reads for 100 ms, a read without an answer, a loss, and a new login with reads."""
    told = Told()
    receiver = {"initiator": "target", "target": "initiator"}[by]
    closed: dict[str, Any] = {f"fin_to_{receiver}_ns": at_s}
    told.session(0, at_s, end="closed", **closed)
    told.reads(0, 0.0, 20)
    told.read(0, 0.2, None)
    told.session(4.0, 20, replaces=0)
    told.reads(1, 4.2, 20)
    return told


# --- the finding


def test_a_warning_is_a_problem_that_leads_where_nothing_broke() -> None:
    told = working()
    for number in range(3):
        breach(told, "D5", "target", 0.05 + number / 100, seen=28_672, expected=16_384)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.text == (
        "The target asked for 28672 bytes in an R2T; MaxBurstLength is 16384 (rule D5, 3 times, first at 0.05 s)."
    )
    assert (finding.rank, finding.severity, finding.points_to) == ("slowness", "warning", "the target")
    assert diagnosis.headline
    assert (diagnosis.headline.name, diagnosis.headline.kind) == (NAME, "problem")
    assert diagnosis.headline.text == finding.text
    assert diagnosis.headline.first_step.startswith("Correct the target")


@pytest.mark.parametrize(("count", "words"), [(3, "3 READ commands"), (1, "1 READ command")])
def test_the_function_that_ended_the_tasks_is_named(count: int, words: str) -> None:
    told = working()
    frames = [told._next_frame() for _ in range(2)]
    for response_s, frame, function in ((0.01, frames[0], "ABORT TASK"), (0.059, frames[1], "LOGICAL UNIT RESET")):
        told.add(
            "task_management",
            connection=0,
            response_ns=response_s,
            response_frame=frame,
            function_text=function,
        )
    for number in range(count):
        breach(told, "M3", "target", 0.06 + number / 100, seen=48 + number, cycle=number)
    finding = found(told.diagnosis())
    assert finding
    assert finding.text == (
        f"The target went on with {words} 1.0 ms after it had answered the LOGICAL UNIT RESET that ended "
        f"{'them' if count > 1 else 'it'} (rule M3, {'3 times, first' if count > 1 else 'once'} at 0.06 s)."
    )
    assert finding.frames[0] == frames[1]


def test_a_function_whose_answer_is_not_in_the_capture_is_not_named() -> None:
    told = working()
    breach(told, "M3", "target", 0.06, seen=48, cycle=0)
    finding = found(told.diagnosis())
    assert finding
    assert "of the task with tag 0x30 after" in finding.text


def test_info_alone_is_no_problem() -> None:
    told = working()
    breach(told, "S17", "target", 0.05, seen=5, expected=4)
    assert found(told.diagnosis()) is None


def test_an_error_is_a_failure_and_the_sides_are_told_apart() -> None:
    told = working()
    breach(told, "D7", "target", 0.05, seen=4096)
    breach(told, "S9", "target", 0.06, seen=9, expected=8)
    breach(told, "D1", "initiator", 0.01, seen=512)
    finding = found(told.diagnosis())
    assert finding
    assert (finding.rank, finding.severity, finding.leads) == ("failure", "error", True)
    assert finding.text == (
        "The target asked again for 4096 bytes that were sent or due (rule D7, once at 0.05 s). The target also broke "
        "rule S9 (once). The initiator broke rule D1 (once)."
    )
    assert [step.split(":")[0] for step in finding.advice] == ["Correct the target", "Correct the initiator"]
    # each names the worst rule of its side
    named = [re.findall(r"`iscsitrace explain (\w+)`", step) for step in finding.advice]
    assert named == [["D7"], ["D1"]]


def test_lost_data_lead_before_any_outage() -> None:
    told = lost()
    breach(told, "D18", "target", 6, connection=1, seen=0, expected=8192)
    diagnosis = told.diagnosis()
    outage = found(diagnosis, "connection_lost")
    assert outage
    assert (outage.cost_ns or 0) > SECOND
    assert diagnosis.headline
    assert diagnosis.headline.name == NAME
    assert diagnosis.headline.text.startswith("The target ended a write GOOD with 0 of 8192 bytes: the others are lost")
    # also before the story of another host
    other = told.session(0, 15, end="reset", rst_to_initiator_ns=15, initiator_address="10.0.0.9")
    told.rows["sessions"][other] |= {"initiator_name": "iqn.other"}
    told.reads(other, 0.0, 20)
    told.read(other, 0.2, None)
    assert told.diagnosis().headline == diagnosis.headline


def test_a_window_that_the_targets_numbers_closed_costs_the_time_without_commands() -> None:
    told = working()
    told.read(0, 0.2, 0.21)
    breach(told, "S8", "target", 1.0, seen=50, expected=49)
    told.read(0, 12.2, 12.3)
    finding = found(told.diagnosis())
    assert finding
    assert (finding.cost_ns, finding.spans) == (12.0 * SECOND, ((at(0.2), at(12.2)),))
    assert "The initiator sent no command for 12.0 s from 0.20 s on." in finding.text


@pytest.mark.parametrize(
    ("allowed", "is_told"),
    [
        # 2^31 above 0, and more: below it in the order of serial numbers, and not below the next CmdSN
        (1 << 31, True),
        ((1 << 31) + 31, True),
        # above 0: an initiator takes it, so that something else stopped it; and one that does not allow the command
        ((1 << 31) - 1, False),
        ((1 << 31) - 17, False),
    ],
)
def test_a_later_number_that_does_not_open_the_window_is_explained(allowed: int, is_told: bool) -> None:
    told = working()
    breach(told, "S8", "target", 0.21, seen=(1 << 31) - 16, expected=0)
    told.read(0, 0.2, 0.22, max_cmd_sn=allowed)
    told.read(0, 12.2, 12.3, max_cmd_sn=allowed)
    finding = found(told.diagnosis())
    assert finding
    assert (f"MaxCmdSN {allowed}, which a later PDU said, is not above 0" in finding.text) == is_told


@pytest.mark.parametrize(
    ("r2t_frames", "count", "who"),
    [
        ((50, 51), 2, "Each R2T of the target has such numbers: the first"),
        # another R2T, another PDU and a single R2T say nothing of all R2Ts
        ((50, 51, 52), 2, "The target"),
        ((50, 51), 3, "The target"),
        ((50, 60), 2, "The target"),
        ((50,), 1, "The target"),
    ],
)
def test_the_numbers_that_closed_the_window_are_told_and_whether_each_r2t_has_them(
    r2t_frames: tuple[int, ...], count: int, who: str
) -> None:
    told = working()
    number = told.read(0, 0.2, 0.21)
    for frame in r2t_frames:
        told.add("rounds", cycle=number, r2t_frame=frame)
    breach(told, "S8", "target", 0.21, seen=50, expected=0)
    breach(told, "S6", "target", 0.05, seen=0, expected=7, count=count, frame=50, last_frame=min(51, 49 + count))
    told.read(0, 12.2, 12.3)
    finding = found(told.diagnosis())
    assert finding
    times = "once" if count == 1 else f"{count} times, first"
    assert f"{who} said ExpCmdSN 0 after 7 (rule S6, {times} at 0.05 s)." in finding.text
    assert "also broke" not in finding.text


def test_numbers_that_were_skipped_are_not_missing_from_the_capture() -> None:
    told = working()
    breach(told, "S9", "target", 0.05, seen=20, expected=10)
    finding = found(told.diagnosis())
    assert finding
    assert finding.text == (
        "The target sent StatSN 20 where 10 was next (rule S9, once at 0.05 s). No byte of the stream is missing there."
    )


@pytest.mark.parametrize(("tag", "is_told"), [(0x33, True), (0x34, False)])
def test_a_tag_in_reverse_byte_order_names_the_command_that_waits(tag: int, is_told: bool) -> None:
    told = working()
    told.read(0, 0.2, None, initiator_task_tag=tag)
    breach(told, "T2", "target", 0.21, seen=0x3300_0000)
    finding = found(told.diagnosis())
    assert finding
    whose = "; in reverse its bytes are 0x00000033, the tag of 1 READ command without a status (rule T2, "
    assert (whose in finding.text) == is_told


# --- causes


@pytest.mark.parametrize("by", ["initiator", "target"])
def test_a_connection_closed_upon_a_violation_names_the_side_that_broke_the_rule(by: str) -> None:
    told = lost(by=by)
    breach(told, "T4", "target", 0.3, seen=0xFFFF_FFFF)
    diagnosis = told.diagnosis()
    finding = found(diagnosis, "connection_lost")
    assert finding
    assert finding.text.startswith(
        "The target sent an R2T with the Target Transfer Tag 0xffffffff, which it may not have (rule T4, once at "
        "0.30 s). Session 0 lost its connection "
    )
    assert f"The {by} closed the connection at 0.50 s." in finding.text
    assert finding.points_to == "the target"
    assert finding.advice[0].startswith("Correct the target")
    assert len(finding.advice) == 1


def test_a_reject_of_what_the_initiator_broke_is_told() -> None:
    told = lost(by="target")
    breach(told, "D9", "initiator", 0.3, seen=16_384, expected=12_288)
    told.add("rejects", connection=0, time_ns=0.31, frame=77, reason_text="invalid PDU field")
    finding = found(told.diagnosis(), "connection_lost")
    assert finding
    assert "(rule D9, once at 0.30 s). The target rejected that PDU (invalid PDU field)." in finding.text
    assert "ends at byte 16384 of its command; its R2T ends at byte 12288" in finding.text
    assert 77 in finding.frames
    assert finding.points_to == "the initiator"


@pytest.mark.parametrize(
    ("rule", "seconds", "connection"),
    [
        # later commands had a status: the initiator bears it
        ("D5", 0.05, 0),
        # after the loss, and of the next session
        ("T4", 4.3, 1),
        # it does no harm
        ("S17", 0.3, 0),
    ],
)
def test_other_violations_are_no_cause_of_a_loss(rule: str, seconds: float, connection: int) -> None:
    told = lost()
    breach(told, rule, "target", seconds, connection=connection, seen=9, expected=8)
    finding = found(told.diagnosis(), "connection_lost")
    assert finding
    assert finding.text.startswith("Session 0 lost its connection")


def stuck() -> tuple[Told, int]:
    """A read that is stuck from 0.2 s on, and aborted at 5 s; others go on at 6 s."""
    told = working()
    number = told.read(0, 0.2, None)
    row = {"connection": 0, "request_ns": 5, "response_ns": 5.01, "lun": 0, "referenced_cycle": number}
    told.add("task_management", **row, function=1, function_text="ABORT TASK", response=0, response_text="done")
    told.time(0, 0.2, 6, "outage")
    told.reads(0, 6, 20)
    return told, number


@pytest.mark.parametrize(
    ("rule", "side", "seconds", "is_of_command"),
    [
        ("D4", "initiator", 0.3, True),
        ("T2", "target", 0.3, False),
        ("S1", "initiator", 0.19, False),
    ],
)
def test_a_command_without_an_answer_has_the_violation_as_its_cause(
    rule: str, side: str, seconds: float, is_of_command: bool
) -> None:
    told, number = stuck()
    breach(told, rule, side, seconds, seen=9, expected=8, **({"cycle": number} if is_of_command else {}))
    finding = found(told.diagnosis(), "task_timeout")
    assert finding
    assert finding.text.startswith(f"The {side} ")
    assert f"(rule {rule}, once at " in finding.text
    assert finding.points_to == f"the {side}"
    assert "storage" not in finding.text
    assert "storage" not in " ".join(finding.advice)


@pytest.mark.parametrize(
    ("rule", "seconds", "cycle"),
    [
        # of another command
        ("D4", 0.05, 3),
        # later commands had a status
        ("S1", 0.05, None),
        # before it was sent
        ("T2", 0.1, None),
        # not one that leaves commands without an answer
        ("S9", 0.3, None),
    ],
)
def test_other_violations_are_no_cause_of_a_timeout(rule: str, seconds: float, cycle: int | None) -> None:
    told, _ = stuck()
    breach(told, rule, "initiator", seconds, seen=9, expected=8, cycle=cycle)
    finding = found(told.diagnosis(), "task_timeout")
    assert finding
    assert finding.text.startswith("Session 0: 1 READ command")
    assert finding.points_to != "the initiator"


@pytest.mark.parametrize(("status", "is_crossed"), [(5.005, True), (None, False)])
def test_an_abort_that_the_status_crossed_aborted_nothing(status: float | None, is_crossed: bool) -> None:
    told = working()
    told.read(0, 4.6, status, initiator_task_tag=7)
    row = {"connection": 0, "request_ns": 5, "response_ns": 5.01, "referenced_task_tag": 7, "function": 1}
    told.add("task_management", **row, function_text="ABORT TASK", response=1, response_text="task does not exist")
    (finding,) = (each for each in told.diagnosis().sessions[0].findings if each.name == "task_aborts")
    assert ("nothing was aborted" in finding.text) == is_crossed
    assert finding.severity == ("warning" if is_crossed else "error")


def test_digests_that_are_always_wrong_are_computed_wrongly() -> None:
    told = working()
    row = {"name": "data_digest_error", "connection": 0, "severity": "error", "count": 3, "first_frame": 3}
    told.rows["counters"].append(row)
    told.rows["connections"][0] |= {"digest_errors_to_initiator": 3}
    (finding,) = (each for each in told.diagnosis().sessions[0].findings if each.name == "digest_errors")
    assert finding.points_to == "the target, or the path between it and the capture point"
    breach(told, "D21", "target", 0.05, seen=0x25)
    (finding,) = (each for each in told.diagnosis().sessions[0].findings if each.name == "digest_errors")
    assert finding.text.startswith(
        "The target computed the digest of every SCSI Data-In wrongly (rule D21, first at 0.05 s). 3 data"
    )
    assert finding.points_to == "the target"
    assert "offload" not in " ".join(finding.advice)


def test_a_login_that_fails_after_an_illegal_value_names_who_sent_it() -> None:
    told = Told()
    told.session(0, 0.1, login_status=0x0200)
    told.login(0.01, 0, 2, 0, status_text="initiator error")
    breach(told, "L3", "initiator", 0.005, seen=[key["name"] for key in login_keys()].index("MaxBurstLength"))
    finding = found(told.diagnosis(), "login_failed")
    assert finding
    assert finding.text.startswith("The initiator sent a value of MaxBurstLength that is out of range, or does not ")
    assert finding.points_to == "the initiator"
    assert finding.advice[0].startswith("Correct the initiator")


# --- captures whose fault is known

CAPTURES: Final = {file.stem: file for file in sorted((captures_folder() / "protocol").glob("*.json"))}
SIDES: Final = {"network": "device between the hosts"}


@pytest.mark.parametrize("file", [pytest.param(file, id=name) for name, file in CAPTURES.items()])
def test_the_headline_names_the_side_at_fault(file: Path) -> None:
    truth = json.loads(file.read_text())
    diagnosis = examine(iscsitrace.read(file.with_suffix(".pcapng"), tables=NEEDED).table)
    headline = diagnosis.headline
    assert headline
    assert headline.name in truth["findings"]
    said = f"{headline.text} {headline.first_step}".lower()
    assert not [each for each in truth["must_not_say"] if each.lower() in headline.text.lower()]
    if truth["fault"] == "none":
        assert NAME not in diagnosis.found
        return
    first = headline.text.partition(". ")[0].lower()
    assert SIDES.get(truth["fault"], truth["fault"]) in first
    # advice names no other cause, either
    assert not [each for each in truth["must_not_say"] if each.lower() in said]


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        # CmdSN 0x7fffffe1, and the 0 of the R2T in frame 200
        (
            "r06_r2t_with_maxcmdsn_0",
            (
                "the next command has CmdSN 2147483617, beyond MaxCmdSN 0 (rule S8, once at 0.12 s)",
                "no command for 40.0 s from 0.12 s on",
                "Each R2T of the target has such numbers: the first said ExpCmdSN 0 after 2147483593 (rule S6, ",
                "until the capture ended: MaxCmdSN 2147483648, which a later PDU said, is not above 0 in the order of",
            ),
        ),
        # 17 below ExpCmdSN
        (
            "v28_maxcmdsn_below_expcmdsn",
            (
                "beyond MaxCmdSN 4142 of frame 67 (rule S8, once at 0.06 s)",
                "no command for 20.0 s from 0.06 s on, until the capture ended; 4 pings had an answer.",
                "The target said MaxCmdSN 4095, less than ExpCmdSN - 1 = 4111: an initiator ignores both (rule S7, ",
            ),
        ),
    ],
)
def test_a_window_is_closed_by_the_numbers_that_are_told(name: str, facts: tuple[str, ...]) -> None:
    headline = examine(iscsitrace.read(CAPTURES[name].with_suffix(".pcapng"), tables=NEEDED).table).headline
    assert headline
    assert not [fact for fact in facts if fact not in headline.text]


@pytest.mark.parametrize("options", [(), ("-v",)])
@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("r06_r2t_with_maxcmdsn_0", 40.0),
        ("v28_maxcmdsn_below_expcmdsn", 20.0),
        # closed as long as it is meant, never, and a violation that costs no time
        ("v28n_window_closed_for_50_ms", None),
        ("r06n_cmdsn_passes_2_31", None),
        ("v13_statsn_skipped", None),
    ],
)
def test_the_time_that_the_window_was_closed_stands_beside_the_breakdown(
    name: str, length: float | None, options: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(main, ["diagnose", *options, str(CAPTURES[name].with_suffix(".pcapng"))])
    said = re.findall(r"beside it:? ([\d.]+) s in which the closed command window let no command pass", result.stdout)
    assert [float(each) for each in said] == ([] if length is None else [pytest.approx(length, abs=0.1)])


@pytest.mark.parametrize("file", [pytest.param(file, id=name) for name, file in CAPTURES.items()])
def test_a_legal_capture_has_no_violation_and_a_fault_is_of_its_side(file: Path) -> None:
    truth = json.loads(file.read_text())
    rows = list(iscsitrace.read(file.with_suffix(".pcapng"), tables=["violations"]).violations.rows())
    if truth["name"] == "v10n_two_bursts":
        # its R2Ts are legal, but MaxBurstLength=16384 was answered together with FirstBurstLength=65536
        assert [(row["rule"], row["side"]) for row in rows] == [("L7", "target")]
    elif truth["fault"] in ("none", "network"):
        assert rows == []
    else:
        assert {row["side"] for row in rows} <= {truth["fault"]}
