"""Headlines on stories: the verdict, every limiter with its sentence, poor captures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.diagnosis import headline
from iscsitrace.findings.breaches import PROTOCOL_VIOLATION
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
        "only 94 % of the PDUs were captured."
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
    assert opinion.headline.text == "Session 0 is healthy. The largest part of the I/O time is data transfer (100 %)."


def test_without_commands_an_unknown_rtt_matters_to_nothing() -> None:
    assert names(Story(rtt_to_target_ns=None)) == {"no_io"}


def test_a_device_scan_alone_has_no_shares() -> None:
    story = Story().tasks(9, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36)
    opinion = story.task(("propagation", 16 * MS), operation="test_unit_ready", data_bytes=0, bytes=0).opinion()
    assert opinion.headline.text == (
        "Session 0: no reads or writes, only 10 commands of a device scan (INQUIRY, TEST UNIT READY)."
    )
    assert (opinion.limiter, opinion.idle_fraction, [each.name for each in opinion.findings]) == (None, None, ["no_io"])
    polls = Story().tasks(2, ("target_service", 16 * MS), operation="test_unit_ready", data_bytes=0, bytes=0)
    assert polls.opinion().headline.text == (
        "Session 0: no reads or writes, only 2 commands that move no data (TEST UNIT READY)."
    )


def test_few_commands_that_moved_data_are_too_few() -> None:
    one = Story().task(("propagation", 16 * MS)).opinion().headline.text
    assert one.startswith("Session 0: only 1 command moved data, too few for a verdict. ")


def test_a_poor_capture_gets_no_headline_if_it_hides_the_limiter() -> None:
    story = Story().tasks(10, ("propagation", 16 * MS), ("unknown", 17 * MS))
    assert story.opinion().headline.text == (
        "Session 0: the capture is too poor for a verdict. 52 % of the time cannot be attributed."
    )
    story = Story().tasks(10, ("propagation", 17 * MS), ("unknown", 16 * MS))
    assert story.opinion().headline.text.startswith("Session 0 is limited by network latency. ")
    # beside data that pass most of the time it hides nothing
    for transfer, name in ((80, "none"), (79, "capture_poor")):
        story = Story().tasks(10, ("transfer", transfer * MS), ("unknown", (100 - transfer) * MS))
        assert story.opinion().headline.name == name
    story = Story(rtt_to_target_ns=None).tasks(10, ("target_service", 17 * MS))
    assert story.opinion().headline.text == (
        "Session 0: the capture is too poor for a verdict. The RTT to one side or both was not measured."
    )


@pytest.mark.parametrize(
    ("count", "decoded_bytes", "name"),
    [
        # what is not decoded may be most of the commands
        (7, 790_000, "capture_poor"),
        (7, 810_000, "too_short"),
        # enough of them are left
        (8, 790_000, "queue_depth_low"),
    ],
)
def test_few_commands_mean_nothing_where_a_fifth_is_not_decoded(count: int, decoded_bytes: int, name: str) -> None:
    story = Story().tasks(count, ("propagation", 16 * MS))
    story.connection["explained_bytes_to_initiator"] = decoded_bytes
    assert story.opinion().headline.name == name


# --- headlines


def test_the_headline_of_reads_at_queue_depth_1() -> None:
    opinion = Story().tasks(10, ("propagation", 16 * MS), ("transfer", 4_500_000)).opinion()
    assert opinion.headline.text == (
        "Session 0 is limited by network latency. The initiator issues one 128 KiB read at a time, and waits for the "
        "network (78 % of the I/O time). A round trip takes at least 16.0 ms."
    )
    assert (opinion.limiter, opinion.idle_fraction) == ("propagation", pytest.approx(160 / 205))
    assert opinion.budget == dict.fromkeys(opinion.budget or {}, 0) | {
        "transfer": 45 * MS,
        "propagation": 160 * MS,
    }


# who waits, and for what; without losses nothing is wrong that the packets show
LIMITERS = [
    ("target_service", "problem", "The initiator waited 600.0 ms for the target in total, at most 60.0 ms at a time"),
    ("initiator_service", "problem", "The initiator answered R2Ts late"),
    ("ack_wait", "problem", "10 commands waited while TCP held data back until an ACK arrived, typically for 60.0 ms"),
    ("receive_window", "problem", "The initiator's TCP receive window (64 KiB) was full for 600.0 ms"),
    (
        "congestion_window",
        "limited",
        "The target waited for ACKs although the receive window had room and no packet was lost",
    ),
    ("send_buffer", "problem", "The target's send buffer was full"),
    ("loss_recovery", "problem", "I/O waited 600.0 ms for retransmissions"),
]


@pytest.mark.parametrize(("part", "kind", "words"), LIMITERS)
def test_every_limiter_has_its_headline(part: str, kind: str, words: str) -> None:
    found = Story().tasks(10, (part, 60 * MS), ("transfer", 40 * MS)).add("senders", **SENDER).opinion().headline
    start = {"problem": "Session 0 has a problem. ", "limited": "Session 0 is limited by TCP. "}[kind]
    assert (found.kind, found.text[: len(start + words)]) == (kind, start + words)
    first, _, _ = found.text.removeprefix(start).partition(". ")
    assert first.removesuffix(".").endswith(" (60 % of the I/O time)")


def test_an_idle_initiator_is_healthy() -> None:
    story = Story()
    for _ in range(10):
        story.task(("transfer", 40 * MS)).pause(60 * MS)
    story.task(("transfer", MS))
    found = story.opinion().headline
    # 600 of 10 x 100 + 1 ms
    assert found.text == (
        "Session 0 is healthy. The largest part of the I/O time is pauses of the initiator between I/Os (60 %)."
    )
    assert (found.kind, found.name, found.first_step) == ("healthy", "none", "")


def test_a_device_scan_has_no_share_of_the_time() -> None:
    story = Story().tasks(8, ("transfer", 1 * MS))
    story.tasks(40, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36)
    opinion = story.opinion()
    assert opinion.headline.text == "Session 0 is healthy. The largest part of the I/O time is data transfer (100 %)."
    assert opinion.time
    assert opinion.time.uses_ns["scan"] == 640 * MS


def test_every_wait_is_tested_here() -> None:
    tested = {part for part, _, _ in LIMITERS} | {"propagation", "initiator_think"}
    # with time that is unknown a capture is too poor for a headline
    # and an outage is a failure: test_outages.py
    assert tested == set(WAITS) - {"unknown", "outage"}


def test_r2t_rounds_are_reported_rather_than_the_queue_depth() -> None:
    assert "A 256 KiB write needs 4 R2Ts, one after another" in writes(10, 4, immediate=1).opinion().headline.text


def test_idle_gaps_are_excluded() -> None:
    story = Story()
    for pause_ns in (*(5 * MS,) * 4, 10 * SECOND, *(5 * MS,) * 4, 0):
        story.tasks(2, ("propagation", 15 * MS), ("transfer", 5 * MS)).pause(pause_ns)
    opinion = story.opinion()
    # 300 of 10 x 40 + 8 x 5 ms
    assert opinion.headline.text == (
        "Session 0 is limited by network latency. The initiator issues one 128 KiB read at a time, and waits for the "
        "network (68 % of the I/O time). A round trip takes at least 16.0 ms."
    )
    assert opinion.limiter == "propagation"
    assert opinion.time
    assert opinion.time.uses_ns["idle"] == 10 * SECOND


def test_a_limit_leads_only_where_it_causes_the_limiter() -> None:
    far = Story().tasks(10, ("transfer", 49 * MS), ("propagation", 51 * MS)).opinion()
    assert (far.headline.kind, far.headline.name) == ("limited", "queue_depth_low")
    assert far.headline.first_step.startswith("Keep more commands in flight: ")
    # half of the time is data: the distance is no longer what limits it
    for transfer, name in ((60, "queue_depth_low"), (95, "queue_depth_low")):
        opinion = (
            Story()
            .tasks(10, ("transfer", transfer * MS), ("propagation", (100 - transfer) * MS))
            .add("senders", **SENDER)
        ).opinion()
        assert name in [each.name for each in opinion.findings]
        assert opinion.headline.text == (
            f"Session 0 is healthy. The largest part of the I/O time is data transfer ({transfer} %)."
        )
        assert (opinion.headline.kind, opinion.headline.first_step) == ("healthy", "")


def test_a_limit_is_never_a_warning() -> None:
    far = Story().tasks(10, ("propagation", 16 * MS)).found("queue_depth_low")
    assert far
    assert (far.rank, far.severity, far.share, far.leads, far.is_problem) == ("limit", "info", 1.0, True, False)


def test_few_commands_are_reported_as_too_few() -> None:
    found = Story().tasks(3, ("propagation", 16 * MS)).opinion().headline
    assert found.text == (
        "Session 0: only 3 commands moved data, too few for a verdict. The largest part of the I/O time is network "
        "round trips (100 %): a round trip takes at least 16.0 ms."
    )
    assert (found.kind, found.name) == ("unknown", "too_short")


def test_a_session_without_commands() -> None:
    opinion = Story().opinion()
    assert opinion.headline.text == "Session 0: no SCSI commands."
    assert (opinion.budget, opinion.idle_fraction, opinion.limiter) == (None, None, None)
    assert [each.name for each in opinion.findings] == ["no_io"]
    story = Story()
    story.rows["cycles"].append({"cycle": 0, "session": 0, "connection": 3})
    assert story.opinion().headline.text == "Session 0: 1 read or write, none with a status."
    # a command that took no time
    instant = Story().task(("transfer", 0)).opinion()
    assert instant.headline.text == "Session 0: the capture's clock is too coarse to time its reads and writes."


# --- which finding leads


def found(name: str, specificity: int, share: float, part: str = "propagation", *, rank: str = "limit") -> Any:
    is_problem = rank == "slowness"
    return SimpleNamespace(
        problem=SimpleNamespace(explains=Explains(part, specificity)),
        name=name,
        share=share,
        rank=rank,
        leads=rank != "note",
        is_problem=is_problem,
        loses_data=False,
    )


def lead_of(*findings: Any) -> str:
    """The name of the headline where propagation is 60 % of the time."""
    subject = sessions_of(Story().tasks(10, ("propagation", 60 * MS), ("transfer", 40 * MS)).source())[0]
    _, name, _ = headline.choose(subject.place, subject.budget, findings, subject.facts)
    return name


def acted_on(lead: Any, *others: Any, kind: headline.Kind = "problem") -> list[str]:
    first = headline.Headline("", lead.name, kind, finding=lead)
    return [each.name for each in headline.to_act_on(first, (*others, lead))]


def test_what_something_has_to_be_done_about() -> None:
    note, slow, slower = found("n", 0, 0.5, rank="note"), *(found(name, 0, 0.5, rank="slowness") for name in "ab")
    # the finding of the headline first, then other problems; no notes
    assert acted_on(slower, note, slow) == ["b", "a"]
    assert acted_on(found("limit", 0, 0.5), note, slow, kind="limited") == ["limit", "a"]
    # what broke, and no slowness beside it
    broke, also = (found(name, 0, 0.5, rank="failure") for name in ("broke", "also"))
    also.is_problem = True
    assert acted_on(broke, slow, also) == ["broke", "also"]
    # nothing is to be done where nothing is wrong, or nothing is known
    for kind in ("healthy", "unknown"):
        assert acted_on(note, note, kind=kind) == []


@pytest.mark.parametrize("rank", ["limit", "slowness"])
@pytest.mark.parametrize(
    ("specific", "general", "named"),
    [
        # half of the largest share, 25 %, is enough, and less is not
        (0.25, 0.5, "specific"),
        (0.24, 0.5, "general"),
        # a third of the part, 20 %, is enough
        (0.21, 0.1, "specific"),
        (0.1, 0.21, "general"),
        # of the same share the more specific
        (0.6, 0.6, "specific"),
    ],
)
def test_the_cause_is_the_most_specific_of_similar_cost(specific: float, general: float, named: str, rank: str) -> None:
    findings = found("general", 0, general, rank=rank), found("specific", 2, specific, rank=rank)
    assert lead_of(*findings) == named


@pytest.mark.parametrize("rank", ["limit", "slowness"])
def test_a_broken_rule_without_a_consequence_comes_behind_what_costs_time(rank: str) -> None:
    broken = found("protocol_violation", 0, 0.0, "none", rank="slowness")
    broken.problem = PROTOCOL_VIOLATION
    assert lead_of(broken, found("slow", 1, 0.6, rank=rank)) == "slow"
    assert lead_of(broken) == "protocol_violation"
    assert lead_of(broken, found("slow", 1, 0.6, rank="note")) == "protocol_violation"


def test_less_than_a_third_of_the_part_does_not_limit_it() -> None:
    assert lead_of(found("limit", 2, 0.19)) == "none"
    # but what is wrong leads wherever it is
    assert lead_of(found("wrong", 2, 0.19, rank="slowness")) == "wrong"


def test_what_is_wrong_comes_before_a_limit() -> None:
    limit, other = found("limit", 9, 0.6), found("other", 0, 0.9, "target_service", rank="slowness")
    assert lead_of(limit, other) == "other"
    # that of the limiter before one that costs more
    assert lead_of(limit, other, found("wrong", 0, 0.3, rank="slowness")) == "wrong"


def test_a_limit_of_another_part_and_a_note_lead_nothing() -> None:
    assert lead_of(found("other", 9, 0.9, "target_service"), found("note", 9, 0.9, rank="note")) == "none"
