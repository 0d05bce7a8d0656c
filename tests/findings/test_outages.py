"""The finding io_outage: on traces by hand, and on recordings of kernels with a known fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from iscsitrace.wording.sentences import brief
from tests.support.histories import SECOND, Told, at
from tests.support.recordings import captures_folder
from tests.support.tables_by_hand import MS

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"


def found(diagnosis: Diagnosis, name: str = "io_outage") -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == name]
    return findings[0] if findings else None


def stalled(*, until: float = 8.0, resumes: bool = True) -> Told:
    """Reads for 100 ms, then one that waits from 0.1 s on."""
    told = Told()
    told.session(0, 20)
    told.reads(0, 0.0, 20)
    told.read(0, 0.1, until if resumes else None)
    told.time(0, 0.1, until, "outage")
    if resumes:
        told.reads(0, until, 20)
    return told


def test_an_outage_has_its_span_its_commands_and_its_end() -> None:
    diagnosis = stalled().diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.spans == ((at(0.1), at(8.0)),)
    assert finding.cost_ns == 7.9 * SECOND
    assert (finding.severity, finding.sessions, finding.luns) == ("error", (0,), (0,))
    assert finding.text == (
        "Session 0 had no I/O for 7.9 s, from 0.10 s to 8.00 s: 1 READ command waited. TCP retransmitted nothing: the "
        "target acknowledged the commands and did not answer them, unless the initiator's link, next to the tap, was "
        "down. I/O resumed on the same connection."
    )
    assert finding.points_to == "the target, or the initiator's link"
    headline = diagnosis.headline
    assert headline
    assert (headline.name, headline.spans, headline.text) == ("io_outage", finding.spans, finding.text)


def _with_nop(told: Told, instant: float) -> None:
    told.add("nops", connection=0, request_ns=instant, response_ns=instant + 0.1, is_ping=True, is_from_initiator=True)


def _far(told: Told) -> None:
    told.rows["connections"][0] |= {"rtt_to_initiator_min_ns": 1 * MS}


@pytest.mark.parametrize("change", [lambda told: _with_nop(told, 3.1), _far], ids=["NOP-Out", "tap in between"])
def test_an_initiator_that_was_there_had_its_ack(change: Callable[[Told], None]) -> None:
    """Else it would have retransmitted, and the tap would have seen that."""
    told = stalled()
    change(told)
    finding = found(told.diagnosis())
    assert finding
    assert "the target acknowledged the commands and did not answer them. I/O resumed" in finding.text
    assert finding.points_to == "the target"


@pytest.mark.parametrize("instant", [0.5, 5.1, 8.5])
def test_a_nop_before_a_retransmission_is_due_or_long_after_proves_nothing(instant: float) -> None:
    told = stalled()
    _with_nop(told, instant)
    finding = found(told.diagnosis())
    assert finding
    assert finding.points_to == "the target, or the initiator's link"


def test_without_a_command_at_the_tap_nothing_points_anywhere() -> None:
    """A black-out before a tap beside the target: no command passes."""
    told = stalled(resumes=False)
    told.rows["cycles"][20] |= {"operation": "test_unit_ready", "is_read": False, "bytes": 0}
    finding = found(told.diagnosis())
    assert finding
    assert "no command passed the tap: the capture does not show which side was down" in finding.text
    assert finding.points_to is None


def test_one_that_does_not_end_in_the_capture_says_so() -> None:
    finding = found(stalled(resumes=False).diagnosis())
    assert finding
    assert finding.is_final
    assert "I/O did not resume in the capture." in finding.text


def again(told: Told, instant: float, **columns: Any) -> None:
    """A retransmission to the target."""
    told.add("retransmissions", connection=0, to_target=True, time_ns=instant, frame=told._next_frame(), **columns)


def test_one_packet_that_is_retransmitted_again_and_again() -> None:
    told = stalled()
    for instant in (0.3, 0.9, 2.1):
        again(told, instant, stream_offset_bytes=48, payload_bytes=48)
    finding = found(told.diagnosis())
    assert finding
    assert "TCP retransmitted one packet 3 times to the target and got no ACK: the path or" in finding.text


def test_retransmissions_point_to_the_path() -> None:
    told = stalled()
    for number, instant in enumerate((0.3, 0.9, 2.1)):
        again(told, instant, stream_offset_bytes=number)
    finding = found(told.diagnosis())
    assert finding
    assert "TCP retransmitted 3 packets to the target and got no ACK: the path or the target was down." in finding.text
    assert finding.advice[0].startswith("Find what dropped the packets")
    told.add("retransmissions", connection=0, to_target=False, time_ns=1.0, frame=told._next_frame())
    both = found(told.diagnosis())
    assert both
    assert "in both directions (3 packets to the target, 1 to the initiator)" in both.text


@pytest.mark.parametrize(("sent_s", "was_up"), [(0.2, False), (0.4, True), (1.0, False)])
def test_a_target_whose_packets_arrive_was_up(sent_s: float, was_up: bool) -> None:
    """Its data had arrived before: the ACKs were lost. What it sent before the first loss is no sign, nor what arrives
    before the last retransmission: that is answered.
    """
    told = stalled()
    for number, instant in enumerate((0.3, 0.9, 2.1)):
        again(told, instant, stream_offset_bytes=number)
    told.add(
        "retransmissions", connection=0, to_target=False, time_ns=sent_s, frame=told._next_frame(), is_spurious=True
    )
    finding = found(told.diagnosis())
    assert finding
    said = "TCP retransmitted 3 packets to the target and got no ACK"
    why = ", though packets of the target arrived: those to it were lost on the path or dropped by it."
    assert f"{said}{why if was_up else ': the path or the target was down.'}" in finding.text
    # a host that is up may drop them
    assert finding.points_to == "the path or the target"


def test_a_needless_retransmission_points_nowhere() -> None:
    told = stalled()
    told.add("retransmissions", connection=0, to_target=True, time_ns=0.3, frame=9, is_spurious=True)
    finding = found(told.diagnosis())
    assert finding
    assert "TCP retransmitted nothing" in finding.text


def test_needless_retransmissions_in_the_middle_of_it_are_lost_acks() -> None:
    told = stalled()
    for instant in (0.3, 3.9, 5.0):
        told.add("retransmissions", connection=0, to_target=False, time_ns=instant, frame=9, is_spurious=True)
    finding = found(told.diagnosis())
    assert finding
    # from 0.1 s to 8 s: one of them in the second half
    assert "TCP retransmitted 1 packet that had arrived: their ACKs did not come back." in finding.text
    assert finding.points_to == "the path"
    assert finding.advice[0].startswith("Find what dropped the packets")


def test_several_outages_are_one_finding() -> None:
    told = stalled(until=3.1)
    told.read(0, 5.0, 7.0)
    told.time(0, 5.0, 7.0, "outage")
    finding = found(told.diagnosis())
    assert finding
    assert (finding.cost_ns, len(finding.spans)) == (5 * SECOND, 2)
    assert finding.text.startswith(
        "Session 0 had no I/O 2 times, 5.0 s in total; the longest lasted 3.0 s, from 0.10 s to 3.10 s: 1 READ"
    )


def test_outages_that_follow_upon_each_other_count_each() -> None:
    """The time breakdown has one stretch of them: a single read completed every 2 s."""
    told = stalled(until=8.1)
    for second in (2.1, 4.1, 6.1):
        told.read(0, second - 0.001, second)
    finding = found(told.diagnosis())
    assert finding
    assert (finding.cost_ns, finding.spans) == (
        8 * SECOND,
        tuple((at(first), at(first + 2)) for first in (0.1, 2.1, 4.1, 6.1)),
    )
    assert finding.text.startswith("Session 0 had no I/O 4 times, 8.0 s in total; the longest lasted 2.0 s, from ")


def test_less_than_a_second_between_progress_is_no_outage() -> None:
    told = stalled(until=8.1)
    for tenth in range(31, 81, 9):
        told.read(0, tenth / 10 - 0.001, tenth / 10)
    finding = found(told.diagnosis())
    assert finding
    assert finding.spans == ((at(0.1), at(3.1)),)


def test_an_outage_goes_on_until_the_next_session_reads() -> None:
    """The connection is closed by the initiator 5 s after the last progress: a reaction to the outage."""
    told = Told()
    told.session(0, 5.3, end="closed", fin_to_target_ns=5.3)
    told.reads(0, 0.0, 20)
    told.read(0, 0.1, None)
    ping = {"is_ping": True, "is_from_initiator": True, "response_ns": None}
    told.add("nops", connection=0, request_ns=0.2, request_frame=5, **ping)
    told.time(0, 0.1, 9.0, "outage")
    told.session(8.0, 20, replaces=0)
    told.read(1, 9.0, 9.2)
    told.reads(1, 9.2, 20)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    # the next progress is the answer to the first read
    assert finding.spans == ((at(0.1), at(9.2)),)
    # the read of the next session ended the outage
    assert ": 1 READ command waited." in finding.text
    assert finding.text.endswith(
        " The initiator closed the connection at 5.30 s, 5.1 s after an unanswered NOP; the initiator logged in again "
        "at 8.01 s."
    )
    assert finding.text.count("NOP") == 1
    # one story: both sessions have the same headline, and so has the capture
    headlines = [*(opinion.headline for opinion in diagnosis.sessions.values()), diagnosis.headline]
    assert {each.text for each in headlines if each} == {brief(finding.text)}
    # the loss and the NOP are its consequences, and in its sentence: no findings of their own
    assert found(diagnosis, "connection_lost") is None
    assert found(diagnosis, "nop_timeout") is None


def test_a_loss_that_came_first_is_no_outage_of_its_own() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.read(0, 0.1, None)
    told.time(0, 0.1, 9.0, "outage")
    told.session(8.0, 20, replaces=0)
    told.read(1, 9.0, 9.2)
    diagnosis = told.diagnosis()
    assert found(diagnosis) is None
    assert diagnosis.headline
    assert diagnosis.headline.name == "connection_lost"


def test_an_outage_that_begins_with_the_first_io_of_the_next_session_is_its_own() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.session(2.0, 20, replaces=0)
    told.read(1, 3.0, 3.1)
    told.read(1, 3.05, 8.0)
    told.time(1, 3.1, 8.0, "outage")
    finding = found(told.diagnosis())
    assert finding
    assert finding.spans == ((at(3.1), at(8.0)),)


RECORDED = [
    # from the scenario: who was out, and for how long at least
    ("black-out-lio", "path", 12),
    ("target-paused-tgt", "target", 4),
    ("mtu-hole-lio", "path", 4),
]


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize(("name", "side", "least_s"), RECORDED)
def test_recordings_of_kernels(name: str, side: str, least_s: float, tap: str) -> None:
    if (name, tap) == ("black-out-lio", "target"):
        pytest.skip("the read that waits never gets to this tap, where the session is idle and then lost")
    trace = iscsitrace.read(VECTORS / name / f"{tap}.pcapng.gz", tables=NEEDED)
    finding = found(examine(trace.table))
    assert finding
    assert finding.cost_ns
    assert least_s * SECOND <= finding.cost_ns <= (least_s + 4) * SECOND
    assert ("TCP retransmitted nothing" in finding.text) == (side == "target")


def test_the_black_hole_of_a_kernel() -> None:
    """Its README: no packet from the target from 4.80 s on, the read resumes at 18.9 s, after a new login."""
    file = captures_folder() / "15_reconnect_blackhole_delay04ms.pcap.gz"
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    trace = iscsitrace.read(file, tables=NEEDED)
    finding = found(examine(trace.table))
    assert finding
    start = int(trace.connections.raw("time_first_ns").min())
    ((first, last),) = finding.spans
    assert abs((first - start) / 1e9 - 4.80) < 0.05
    assert abs((last - start) / 1e9 - 18.9) < 0.05
    assert ": 1 READ command waited." in finding.text
    # the SYN at 10.84 s was retransmitted 3 times, and the SYN-ACK came at 18.03 s
    assert "lost on the path or dropped by it for at least 6.0 s and at most 13.2 s." in finding.text
    said = "The new connection took 4 SYNs: the first, at 10.84 s, had no answer; a later one was answered at 18.03 s."
    assert said in finding.text
    assert 1823 in finding.frames


def _rebuilt(**columns: Any) -> Finding:
    """A read that waits from 0.1 s to 9.2 s: TCP retransmits until 2.1 s, the initiator closes, and connects anew."""
    told = Told()
    told.session(0, 5.3, end="closed", fin_to_target_ns=5.3, syn_ns=0, syn_ack_ns=0.001)
    told.reads(0, 0.0, 20)
    told.read(0, 0.1, None)
    for instant in (0.3, 0.9, 2.1):
        again(told, instant, original_ns=0.1)
    told.time(0, 0.1, 9.0, "outage")
    syn = {"syn_ns": 6.0, "syn_frame": 777, "syn_ack_ns": 8.0} | columns
    told.session(6.0, 20, replaces=0, **{name: value for name, value in syn.items() if value is not None})
    told.read(1, 9.0, 9.2)
    finding = found(told.diagnosis())
    assert finding
    return finding


def test_the_dead_path_is_told_from_the_wait_for_the_new_login() -> None:
    finding = _rebuilt(retransmitted_syns_to_target=2)
    assert finding.text.startswith("Session 0 had no I/O for 9.1 s, from 0.10 s to 9.20 s: 1 READ command waited.")
    assert "the path or the target was down for at least 5.9 s and at most 7.9 s." in finding.text
    assert "took 3 SYNs: the first, at 6.00 s, had no answer; a later one was answered at 8.00 s." in finding.text
    assert 777 in finding.frames


def test_a_syn_that_is_answered_at_once_leaves_what_was_sent_before() -> None:
    finding = _rebuilt(syn_ack_ns=6.001)
    assert "was down for at least 2.0 s and at most 5.9 s." in finding.text
    assert "SYNs" not in finding.text


def test_the_wait_for_a_new_connection_is_told_from_the_login() -> None:
    text = _rebuilt(retransmitted_syns_to_target=2).text
    assert "logged in again at 6.01 s: 5.9 s until its first SYN, then 10.0 ms until the login." in text
    assert "until its first SYN" not in _rebuilt(syn_ns=None, syn_ack_ns=None).text


def test_a_new_connection_without_its_syn_tells_no_bounds() -> None:
    assert "the path or the target was down." in _rebuilt(syn_ns=None, syn_ack_ns=None).text


def test_a_connection_that_nobody_closed_is_lost_by_the_outage() -> None:
    """The initiator drops it without a FIN: unacknowledged data were before that, so none was sent."""
    told = Told()
    told.session(0, 10.2, time_last_to_target_ns=10.2, time_last_to_initiator_ns=0.099)
    told.reads(0, 0.0, 20)
    told.read(0, 0.1, None)
    told.time(0, 0.1, 10.2, "outage")
    told.session(13.0, 20, replaces=0)
    told.reads(1, 13.1, 20)
    diagnosis = told.diagnosis()
    headline = diagnosis.headline
    assert headline
    assert (headline.name, headline.spans) == ("io_outage", ((at(0.1), at(13.105)),))
    assert headline.finding
    # the session that took its place lost nothing
    assert headline.finding.text.startswith("Session 0 had no I/O for 13.0 s, from 0.10 s to 13.11 s")
    assert "The initiator logged in again at 13.01 s, over a new connection." in headline.finding.text
