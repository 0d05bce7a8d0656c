"""Headlines on stories: every limiter with its sentence, poor captures, notes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.diagnosis import headline
from iscsitrace.findings.case import Case, Groups
from iscsitrace.findings.finding import Explains
from iscsitrace.measure.grouping import sessions_of
from iscsitrace.measure.session import WAITS
from tests.support.story import SECOND, SENDER, Story, names, near, writes
from tests.support.tables_by_hand import MS

# --- poor captures


def test_a_poor_capture() -> None:
    transfer, wait = near(0.05)
    assert names(Story().tasks(10, transfer, ("unknown", wait))) == {"capture_poor"}
    transfer, wait = near(0.049)
    assert names(Story().tasks(10, transfer, ("unknown", wait))) == set()
    for column, poor in (("explained_bytes_to_initiator", 979_999), ("missing_pdu_count_to_initiator", 21)):
        story = Story().tasks(10, transfer)
        story.connection[column] = poor
        assert names(story) == {"capture_poor"}
        story.connection[column] = 980_000 if poor > 100 else 20
        assert names(story) == set()
    assert names(Story(rtt_to_initiator_ns=None).tasks(10, transfer)) == {"capture_poor"}


def test_a_poor_capture_names_what_is_missing_and_the_first_frames_after_it() -> None:
    story = Story().tasks(10, ("transfer", 95 * MS), ("unknown", 5 * MS))
    # 900,000 and 980,000 of a million bytes each, and 60 PDUs of 1060 missing
    story.connection |= {"explained_bytes_to_initiator": 900_000, "missing_pdu_count_to_target": 60}
    story.connection |= {"stream_bytes_to_target": 1_000_000, "explained_bytes_to_target": 980_000}
    for frame, name in enumerate(("capture_gap", "not_tcp", "sync_lost", "hole_abandoned", "header_assumed"), start=40):
        story.add("counters", name=name, severity="info", count=1, first_frame=frame)
    found = story.found("capture_poor")
    assert found
    assert found.text == (
        "5 % of the time cannot be attributed; only 94 % of the stream bytes are decoded; "
        "only 94 % of the PDUs were captured"
    )
    assert (found.share, found.frames, found.severity) == (0.05, (40, 42, 43, 44), "data_loss")


@pytest.mark.parametrize(("missing", "is_poor"), [(20, False), (21, True)])
def test_a_fifth_of_the_pdus_may_hide_a_problem(missing: int, is_poor: bool) -> None:
    story = Story().tasks(8, ("transfer", 16 * MS))
    story.connection |= {"pdu_count_to_target": 80, "pdu_count_to_initiator": 0, "missing_pdu_count_to_target": missing}
    assert story.opinion().headline.name == ("capture_poor" if is_poor else "none")


def test_missing_bytes_alone_do_not_hide_the_limiter() -> None:
    story = Story().tasks(10, ("transfer", 100 * MS))
    story.connection["explained_bytes_to_initiator"] = 1
    opinion = story.opinion()
    assert [finding.name for finding in opinion.findings] == ["capture_poor"]
    assert opinion.verdict == "No problem found. Session 0 is line-bound: 100 % of the time is data transfer."


def test_without_commands_an_unknown_rtt_matters_to_nothing() -> None:
    assert names(Story(rtt_to_target_ns=None)) == {"no_io"}


def test_a_device_scan_alone_has_no_shares() -> None:
    story = Story().tasks(9, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36)
    opinion = story.task(("propagation", 16 * MS), operation="test_unit_ready", data_bytes=0, bytes=0).opinion()
    assert opinion.verdict == (
        "Nothing was read or written in session 0: 10 commands of a device scan (INQUIRY, TEST UNIT READY)."
    )
    assert (opinion.limiter, opinion.idle_fraction, [each.name for each in opinion.findings]) == (None, None, ["no_io"])
    polls = Story().tasks(2, ("target_service", 16 * MS), operation="test_unit_ready", data_bytes=0, bytes=0)
    assert polls.opinion().verdict == (
        "Nothing was read or written in session 0: 2 commands that move no data (TEST UNIT READY)."
    )


def test_few_commands_that_moved_data_are_too_few() -> None:
    one = Story().task(("propagation", 16 * MS)).opinion().verdict
    assert one.endswith("Only 1 command moved data: too few to be sure.")


def test_a_poor_capture_gets_no_headline_if_it_hides_the_limiter() -> None:
    story = Story().tasks(10, ("propagation", 16 * MS), ("unknown", 17 * MS))
    assert story.opinion().verdict == (
        "Session 0: limiter unknown, the capture is too poor: 52 % of the time cannot be attributed."
    )
    story = Story().tasks(10, ("propagation", 17 * MS), ("unknown", 16 * MS))
    assert story.opinion().verdict.startswith("Session 0 is latency-bound: 52 % of the time is network RTT (16.0 ms).")
    story = Story(rtt_to_target_ns=None).tasks(10, ("target_service", 17 * MS))
    assert story.opinion().verdict == (
        "Session 0: limiter unknown, the capture is too poor: the RTT to one side or both was not measured."
    )


# --- headlines


def test_the_headline_of_reads_at_queue_depth_1() -> None:
    opinion = Story().tasks(10, ("propagation", 16 * MS), ("transfer", 4_500_000)).opinion()
    assert opinion.verdict == (
        "Session 0 is latency-bound: 78 % of the time is network RTT (16.0 ms). "
        "It issues one 128 KiB read at a time (queue depth 1)."
    )
    assert (opinion.limiter, opinion.idle_fraction) == ("propagation", pytest.approx(160 / 205))
    assert opinion.budget == dict.fromkeys(opinion.budget or {}, 0) | {
        "transfer": 45 * MS,
        "propagation": 160 * MS,
    }


LIMITERS = [
    ("target_service", "target-bound", "target service time. Every command in flight was stalled for 600.0 ms"),
    ("initiator_service", "initiator-bound", "initiator service time, from R2T to first Data-Out. The initiator"),
    ("ack_wait", "ACK-limited", "data that TCP holds back until an ACK arrives. 10 commands waited"),
    ("receive_window", "receive-window-limited", "waiting for the receive window to open. The initiator's receive"),
    (
        "congestion_window",
        "cwnd-limited",
        "waiting for the congestion window to open. The sender is the target, with 0 losses",
    ),
    ("send_buffer", "send-buffer-limited", "waiting for room in the send buffer. The target was send-buffer-limited"),
    ("loss_recovery", "loss-limited", "recovery from packet loss. 0 losses"),
]


@pytest.mark.parametrize(("part", "limited", "words"), LIMITERS)
def test_every_limiter_has_its_headline(part: str, limited: str, words: str) -> None:
    verdict = Story().tasks(10, (part, 60 * MS), ("transfer", 40 * MS)).add("senders", **SENDER).opinion().verdict
    assert verdict.startswith(f"Session 0 is {limited}: 60 % of the time is {words}")


def test_an_idle_initiator_has_its_headline() -> None:
    story = Story()
    for _ in range(10):
        story.task(("transfer", 40 * MS)).pause(60 * MS)
    story.task(("transfer", MS))
    assert story.opinion().verdict == (
        "No problem found. Session 0 is initiator-bound: 60 % of the time is initiator think time, with no commands in "
        "flight. The initiator was idle 10 times within its I/O (no commands in flight), median 60.0 ms."
    )


def test_a_device_scan_has_no_share_of_the_time() -> None:
    story = Story().tasks(8, ("transfer", 1 * MS))
    story.tasks(40, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36)
    assert story.opinion().verdict == (
        "No problem found. Session 0 is line-bound: 100 % of the time is data transfer. "
        "The device scan took 640.0 ms: 40 non-I/O commands (INQUIRY)."
    )
    # 4 ms are not worth a note beside 96
    brief = Story().tasks(8, ("transfer", 12 * MS)).task(("propagation", 4 * MS), operation="inquiry", bytes=36)
    assert brief.opinion().verdict == "No problem found. Session 0 is line-bound: 100 % of the time is data transfer."


def test_every_wait_is_tested_here() -> None:
    tested = {part for part, _, _ in LIMITERS} | {"propagation", "initiator_think"}
    # with time that is unknown a capture is too poor for a headline
    # and an outage is a failure: test_outages.py
    assert tested == set(WAITS) - {"unknown", "outage"}


def test_r2t_rounds_are_reported_rather_than_the_queue_depth() -> None:
    assert "A 256 KiB write needs 4 R2Ts, one after another" in writes(10, 4, immediate=1).opinion().verdict


def test_idle_gaps_are_excluded_and_reported() -> None:
    story = Story()
    for pause_ns in (*(5 * MS,) * 4, 10 * SECOND, *(5 * MS,) * 4, 0):
        story.tasks(2, ("propagation", 15 * MS), ("transfer", 5 * MS)).pause(pause_ns)
    opinion = story.opinion()
    # 300 of 10 x 40 + 8 x 5 ms
    assert opinion.verdict == (
        "Session 0 is latency-bound: 68 % of the time is network RTT (16.0 ms). It issues one 128 KiB read at a time "
        "(queue depth 1). Shares are of 440.0 ms of busy time; no command was in flight for another 10.0 s."
    )
    assert opinion.limiter == "propagation"


def test_a_full_line() -> None:
    story = Story().tasks(10, ("transfer", 95 * MS), ("propagation", 5 * MS)).add("senders", **SENDER)
    assert story.opinion().verdict == (
        "No problem found. Session 0 is line-bound: 95 % of the time is data transfer (line rate 40.0 MB/s)."
    )
    story = Story().tasks(10, ("transfer", 60 * MS), ("propagation", 40 * MS))
    assert story.opinion().verdict.endswith(
        "It is also latency-bound: 40 % of the time is network RTT (16.0 ms). "
        "It issues one 128 KiB read at a time (queue depth 1)."
    )


def test_few_commands_are_reported_as_too_few() -> None:
    verdict = Story().tasks(3, ("propagation", 16 * MS)).opinion().verdict
    assert verdict == (
        "Session 0 is latency-bound: 100 % of the time is network RTT (16.0 ms). "
        "Only 3 commands moved data: too few to be sure."
    )


def test_a_session_without_commands() -> None:
    opinion = Story().opinion()
    assert opinion.verdict == "Session 0 carried no SCSI commands: there is no time to break down."
    assert (opinion.budget, opinion.idle_fraction, opinion.limiter) == (None, None, None)
    assert [each.name for each in opinion.findings] == ["no_io"]
    story = Story()
    story.rows["cycles"].append({"cycle": 0, "session": 0, "connection": 3})
    assert story.opinion().verdict == "Session 0: its 1 read or write has no status: no time to break down."
    # a command that took no time
    instant = Story().task(("transfer", 0)).opinion()
    assert instant.verdict == "Session 0: its reads and writes took no time by the capture's clock."


# --- which cause the sentence names


def found(specificity: int, share: float, cause: str, part: str = "propagation") -> Any:
    problem = SimpleNamespace(explains=Explains(part, specificity), rank="slowness")
    return SimpleNamespace(problem=problem, share=share, cause=cause, leads=False, rank="slowness")


def cause_of(*findings: Any, story: Story | None = None) -> str:
    """What follows the share; by default propagation is 60 % of the time."""
    told = story or Story().tasks(10, ("propagation", 60 * MS), ("transfer", 40 * MS))
    sentence = headline.of(
        Case(sessions_of(told.source())[0], Groups((), (), told.source()("cycles"))), findings
    ).sentence
    return sentence.partition("of the time is network RTT (16.0 ms).")[2].strip()


@pytest.mark.parametrize(
    ("specific", "general", "named"),
    [
        # half of the largest share, 25 %, is enough, and less is not
        (0.25, 0.5, "specific"),
        (0.24, 0.5, "general"),
        # a third of the part, 20 %, is enough, and less is not
        (0.21, 0.1, "specific"),
        (0.19, 0.1, ""),
        (0.1, 0.21, "general"),
        # of the same share the more specific
        (0.6, 0.6, "specific"),
    ],
)
def test_the_cause_is_the_most_specific_of_similar_cost(specific: float, general: float, named: str) -> None:
    assert cause_of(found(0, general, "general"), found(2, specific, "specific")) == named


def test_a_cause_of_another_part_is_not_named() -> None:
    assert cause_of(found(9, 0.9, "other", "target_service")) == ""
    unexplained = SimpleNamespace(
        problem=SimpleNamespace(explains=None, rank="note"), share=0.9, cause="none", leads=False, rank="note"
    )
    assert cause_of(unexplained) == ""
