"""The finding connection_lost: on traces by hand, and on recordings of kernels with a known fault."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iscsitrace
from iscsitrace.diagnosis import registry
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from iscsitrace.findings.history import History, Surroundings
from iscsitrace.measure.grouping import sessions_of
from iscsitrace.relate import stories
from tests.conformance.conversations import made
from tests.support.histories import SECOND, Told, at

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"


def found(diagnosis: Diagnosis) -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == "connection_lost"]
    return findings[0] if findings else None


def lost(*, in_flight: int = 1, how: Mapping[str, Any] | None = None) -> Told:
    """Reads for 100 ms, a loss at 0.5 s, a new login at 4.01 s, and I/O from 4.2 s on."""
    told = Told()
    told.session(0, 0.5, end="reinstated", **({"rst_to_initiator_ns": 0.5} if how is None else how))
    told.reads(0, 0.0, 20)
    for _ in range(in_flight):
        told.read(0, 0.3, None)
    told.session(4.0, 20, replaces=0)
    told.read(1, 4.1, 4.2)
    told.reads(1, 4.2, 20)
    return told


def test_a_reset_has_its_side_its_commands_and_the_time_to_the_next_io() -> None:
    finding = found(lost(in_flight=3).diagnosis())
    assert finding
    assert finding.text == (
        "Session 0 lost its connection for 3.7 s, from 0.50 s to 4.20 s. The target reset the connection at "
        "0.50 s. The initiator logged in again 3.5 s later, and I/O resumed. 3 commands had no status."
    )
    assert (finding.cost_ns, finding.spans) == (3.7 * SECOND, ((at(0.5), at(4.2)),))
    assert (finding.severity, finding.sessions) == ("error", (0, 1))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"rst_to_initiator_ns": 0.5}, "The target reset"),
        ({"rst_to_target_ns": 0.5}, "The initiator reset"),
        ({"fin_to_initiator_ns": 0.5}, "The target closed"),
        ({"fin_to_target_ns": 0.5}, "The initiator closed"),
        # who was first
        ({"fin_to_target_ns": 0.5, "rst_to_initiator_ns": 0.6}, "The initiator closed"),
        ({"fin_to_target_ns": 0.5, "rst_to_initiator_ns": 0.4}, "The target reset"),
        ({}, "The connection fell silent"),
        # the old connection is closed long after the new login: that was not the loss
        ({"rst_to_target_ns": 9.0}, "The connection fell silent"),
    ],
)
def test_who_ended_it(how: dict[str, float], sentence: str) -> None:
    finding = found(lost(how=how).diagnosis())
    assert finding
    assert sentence in finding.text


def test_a_capture_that_lacks_pdus_may_lack_the_logout_and_statuses() -> None:
    def ended(how: str, **columns: Any) -> Finding | None:
        told = Told()
        told.session(0, 5, end=how, **columns)
        told.reads(0, 0.0, 20)
        told.read(0, 0.3, None)
        return found(told.diagnosis())

    closed = {"fin_to_target_ns": 5}
    whole = ended("closed", **closed)
    assert whole
    assert "1 command had no status." in whole.text
    for name in ("gap_bytes_to_target", "missing_pdu_count_to_target", "missing_pdu_count_to_initiator"):
        assert ended("closed", **closed, **{name: 1}) is None
    # nobody resets what was logged out, and a status may be lacking
    reset = ended("reset", rst_to_initiator_ns=5, missing_pdu_count_to_initiator=1)
    assert reset
    assert "had no status" not in reset.text
    # a login after it takes its place, and nothing says that it was logged out
    again = lost(how=closed | {"missing_pdu_count_to_initiator": 1})
    again_found = found(again.diagnosis())
    assert again_found
    assert "had no status" not in again_found.text


def test_a_nop_without_an_answer_is_why() -> None:
    told = lost(how={"fin_to_target_ns": 0.5})
    told.add("nops", connection=0, request_ns=0.2, request_frame=5, is_ping=True, is_from_initiator=True)
    finding = found(told.diagnosis())
    assert finding
    assert "The initiator closed the connection at 0.50 s, 300.0 ms after an unanswered NOP." in finding.text


@pytest.mark.parametrize(
    ("changed", "closed", "since"),
    [
        ({}, 14.0, 1.2),
        ({"retransmitted_packets": 2, "time_first_ns": 13.0}, 14.0, 13.0),
        # one may be lost like what it repeats; this takes less than a second; this was acknowledged
        ({"retransmitted_packets": 1, "time_first_ns": 13.0}, 14.0, None),
        ({"time_first_ns": 13.1}, 14.0, None),
        ({"time_last_ns": 1.4}, 14.0, None),
        # TCP would have repeated it again: the ACK is not in the capture, and the program was idle
        ({"retransmitted_packets": 3}, 14.0, None),
        ({"retransmitted_packets": 3}, 9.2, 1.2),
        ({"retransmitted_packets": 40}, 257.2, 1.2),
        ({"retransmitted_packets": 40}, 257.3, None),
        # no ACK can be seen
        ({"unseen": "to_target"}, 14.0, None),
        ({"unseen": "to_initiator"}, 14.0, None),
        # commands may be among what the capture lacks
        ({"missing_pdu_count_to_target": 1}, 14.0, None),
        # of another connection
        ({"connection": 1}, 14.0, None),
    ],
)
@pytest.mark.parametrize("to_target", [False, True])
def test_a_dead_connection_is_lost_from_what_was_retransmitted_in_vain(
    changed: dict[str, Any], closed: float, since: float | None, *, to_target: bool
) -> None:
    """The target's tap of a path that went dark: the next command is not seen, and the close is the initiator's."""
    recovery = {"time_first_ns": 1.2, "time_last_ns": None, "retransmitted_packets": 7, "connection": 0} | changed
    seen = {"to_target", "to_initiator"} - {recovery.pop("unseen", "")}
    lasts: dict[str, Any] = {f"time_last_{direction}_ns": 1.1 for direction in seen}
    lasts["missing_pdu_count_to_target"] = recovery.pop("missing_pdu_count_to_target", 0)
    told = Told()
    told.session(0, closed, end="reset", rst_to_target_ns=closed, **lasts)
    told.reads(0, 0.0, 20)
    told.add("recoveries", to_target=to_target, cause="timeout", frame_first=9, **recovery)
    told.session(closed + 0.1, closed + 9, replaces=0)
    told.read(1, closed + 0.2, closed + 0.3)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.spans == ((at(closed if since is None else since), at(closed + 0.3)),)
    assert ("after the first unanswered retransmission. The initiator logged in again" in finding.text) == (
        since is not None
    )
    assert (" after that retransmission, and I/O resumed" in finding.text) == (since is not None)
    if since is not None:
        assert finding.points_to == f"the path or the {'target' if to_target else 'initiator'}"
        assert diagnosis.headline
        assert diagnosis.headline.name == "connection_lost"


def test_commands_in_flight_tell_more_than_what_was_retransmitted() -> None:
    told = lost(how={"rst_to_target_ns": 4.0, "time_last_to_target_ns": 4.0, "time_last_to_initiator_ns": 4.0})
    told.read(0, 0.4, None)
    told.add("recoveries", connection=0, to_target=False, cause="timeout", time_first_ns=0.6, retransmitted_packets=7)
    finding = found(told.diagnosis())
    assert finding
    assert "retransmission" not in finding.text


def test_a_session_that_is_never_back_ended_in_an_error() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.read(0, 0.3, None)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert (finding.is_final, finding.cost_ns) == (True, None)
    assert "No login followed in the capture." in finding.text
    assert diagnosis.headline
    assert diagnosis.headline.name == "connection_lost"


def test_a_program_that_ends_without_a_logout_is_a_note() -> None:
    told = Told()
    told.session(0, 0.5, end="closed", fin_to_target_ns=0.5)
    told.reads(0, 0.0, 20)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert (finding.severity, finding.leads) == ("info", False)
    assert diagnosis.headline
    assert diagnosis.headline.name != "connection_lost"


@pytest.mark.parametrize("how", [{"rst_to_initiator_ns": 0.5}, {"fin_to_initiator_ns": 0.5}, {"fin_to_target_ns": 0.5}])
def test_no_program_ends_like_this(how: dict[str, Any]) -> None:
    """The target closes an idle session; or the initiator does, after a NOP without an answer."""
    told = Told()
    told.session(0, 0.5, end="closed", **how)
    told.reads(0, 0.0, 20)
    if "fin_to_target_ns" in how:
        told.add("nops", connection=0, request_ns=0.2, request_frame=5, is_ping=True, is_from_initiator=True)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert (finding.severity, finding.is_final) == ("error", True)
    assert diagnosis.headline
    assert diagnosis.headline.name == "connection_lost"


@pytest.mark.parametrize("columns", [{"end": "logout"}, {"end": "open"}, {"session_type": "discovery", "end": "reset"}])
def test_no_loss(columns: dict[str, Any]) -> None:
    told = Told()
    told.session(0, 0.5, fin_to_target_ns=0.5, **columns)
    told.reads(0, 0.0, 20)
    assert found(told.diagnosis()) is None


@pytest.mark.parametrize(("cycle_count", "is_lost"), [(21, True), (0, False)])
def test_a_session_whose_login_is_not_in_the_capture_has_commands(cycle_count: int, is_lost: bool) -> None:
    told = lost()
    told.rows["sessions"][0] |= {"session_type": "unknown", "initiator_name": None, "cycle_count": cycle_count}
    finding = found(told.diagnosis())
    assert (finding is not None) == is_lost


def test_a_refused_login_between_is_of_the_same_story() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.session(1.0, 1.1, end="refused", replaces=0, login_status=0x0203)
    told.session(4.0, 20, replaces=1)
    told.reads(2, 4.2, 20)
    diagnosis = told.diagnosis()
    (story,) = diagnosis.stories
    assert story.story.numbers == (0, 1, 2)
    finding = found(diagnosis)
    assert finding
    assert finding.spans == ((at(0.5), at(4.205)),)


def test_a_session_that_is_lost_twice_costs_the_time_of_both() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.session(2.0, 5.0, end="closed", replaces=0, fin_to_target_ns=5.0)
    told.reads(1, 2.5, 20)
    told.session(9.0, 20, replaces=1)
    told.reads(2, 9.5, 20)
    finding = found(told.diagnosis())
    assert finding
    assert finding.text.startswith(
        "Sessions 0 and 1 lost their connection 2 times, the longest for 4.5 s, from 5.00 s to 9.51 s. "
    )
    assert finding.spans == ((at(0.5), at(2.505)), (at(5.0), at(9.505)))
    assert finding.cost_ns == (2.005 + 4.505) * SECOND


def test_losses_that_overlap_cost_their_time_once() -> None:
    """Two hosts that take each other's session: the second loss begins before the first is over."""
    told = Told()
    told.session(0, 1.0, end="reinstated", fin_to_initiator_ns=1.0)
    told.reads(0, 0.0, 20)
    told.session(2.0, 3.0, end="reinstated", replaces=0, fin_to_initiator_ns=3.0)
    told.session(4.0, 20, replaces=1)
    told.reads(2, 5.0, 20)
    finding = found(told.diagnosis())
    assert finding
    # no read between: both are over with the first status, 5 ms after 5 s
    assert finding.spans == ((at(1.0), at(5.005)), (at(3.0), at(5.005)))
    assert finding.cost_ns == 4.005 * SECOND


def test_of_several_connections_the_last_one_counts() -> None:
    told = Told()
    told.session(0, 5.0, end="reset", rst_to_initiator_ns=0.5)
    told.connection(0, 5.0, session=0, is_iscsi=True, rst_to_target_ns=5.0)
    told.reads(0, 0.0, 20)
    told.session(7.0, 20, replaces=0)
    told.reads(1, 8.0, 20)
    finding = found(told.diagnosis())
    assert finding
    assert "The initiator reset the connection at 5.00 s." in finding.text
    assert finding.spans == ((at(5.0), at(8.005)),)


def test_one_of_two_connections_that_ends_loses_no_session() -> None:
    told = Told()
    told.session(0, 20, rst_to_initiator_ns=0.5)
    told.connection(0, 20, session=0, is_iscsi=True)
    told.reads(0, 0.0, 20)
    assert found(told.diagnosis()) is None


def test_a_session_whose_login_was_not_captured_falls_silent() -> None:
    """The capture starts within it: it has no name, and no close; the new session has its addresses."""
    told = Told()
    silent: dict[str, Any] = {"time_last_to_target_ns": 6.0, "time_last_to_initiator_ns": 2.0}
    told.session(0, 6.0, initiator_name=None, target_name=None, isid=None, **silent)
    told.rows["logins"].clear()
    told.reads(0, 0.0, 20)
    told.session(9.0, 20, replaces=0)
    told.reads(1, 9.5, 20)
    finding = found(told.diagnosis())
    assert finding
    assert "The connection fell silent at 2.00 s. The initiator logged in again 7.0 s later" in finding.text


def test_data_after_the_close_is_no_resumption() -> None:
    """The target still sends what the initiator's FIN does not keep it from sending."""
    told = lost(how={"fin_to_target_ns": 0.5})
    told.read(0, 0.4, 0.6)
    finding = found(told.diagnosis())
    assert finding
    assert "for 3.7 s, from 0.50 s to 4.20 s." in finding.text


def test_a_dead_connection_is_lost_from_the_nop_on() -> None:
    """The initiator gave the connection up long before its RST got through; nothing was in flight."""
    told = Told()
    told.session(0, 23.0, end="reinstated", rst_to_target_ns=23.0)
    told.reads(0, 9.0, 20)
    told.add("nops", connection=0, request_ns=16.0, request_frame=5, is_ping=True, is_from_initiator=False)
    told.session(22.0, 40, replaces=0)
    told.rows["logins"][-1]["response_ns"] = at(23.1)
    told.read(1, 23.2, 23.3)
    told.time(1, 22.0, 23.3, "outage")
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.spans == ((at(16.0), at(23.3)),)
    assert "7.0 s after an unanswered NOP. The initiator logged in again 7.1 s after that NOP" in finding.text
    # what the new session lacked of a second of progress is not an outage of its own
    assert [each.name for each in diagnosis.stories[0].findings] == ["connection_lost"]


def test_a_nop_that_a_later_answer_follows_is_not_why() -> None:
    told = Told()
    told.session(0, 23.0, end="reset", rst_to_target_ns=23.0)
    told.add("nops", connection=0, request_ns=2.0, request_frame=5, is_ping=True, is_from_initiator=True)
    told.add("nops", connection=0, request_ns=9.0, response_ns=9.1, request_frame=6, is_ping=True)
    told.reads(0, 15.0, 20)
    told.session(24.0, 40, replaces=0)
    told.reads(1, 25.0, 20)
    finding = found(told.diagnosis())
    assert finding
    assert "NOP" not in finding.text
    assert finding.spans == ((at(23.0), at(25.005)),)


@pytest.mark.parametrize(
    "names",
    [
        # a probe that closes at once, and another session later
        {},
        # cut by a snaplen: the first may be discovery
        {"initiator_name": None, "target_name": None},
    ],
)
def test_an_unused_session_before_another_one_was_not_lost(names: dict[str, Any]) -> None:
    told = Told()
    told.session(0, 0.1, isid="80", end="closed", fin_to_target_ns=0.1, **names)
    told.session(5.0, 20, isid="81", **names)
    told.reads(1, 6.0, 20)
    diagnosis = told.diagnosis()
    assert diagnosis.headline
    assert diagnosis.headline.name != "connection_lost"
    assert all(not each.leads for story in diagnosis.stories for each in story.findings)


def test_connects_belong_to_the_session_that_was_lost_not_to_the_one_beside_it() -> None:
    """Two paths of one host to one portal."""
    told = Told()
    told.session(0, 40, isid="80")
    told.reads(0, 0.0, 20)
    told.session(0.1, 5.0, isid="81", end="reset", rst_to_initiator_ns=5.0)
    told.reads(1, 0.2, 20)
    told.connection(7.0, 7.1, syn_ns=7.0, is_refused=True, rst_to_initiator_ns=7.1)
    told.session(9.0, 40, isid="81", replaces=1)
    told.reads(2, 9.5, 20)
    diagnosis = told.diagnosis()
    beside, story = diagnosis.stories
    assert [len(each.story.connections) for each in (beside, story)] == [1, 3]
    assert [each.name for each in beside.findings] == []
    assert story.headline.finding
    assert "1 connection attempt was refused (RST)." in story.headline.finding.text


def renumbered(told: Told, numbers: list[int]) -> Told:
    """The same trace with its sessions numbered otherwise, and its rows in that order."""
    for rows in told.rows.values():
        for row in rows:
            for name in ("session", "replaces"):
                if row.get(name) is not None:
                    row[name] = numbers[row[name]]
    told.rows["sessions"].sort(key=lambda row: int(row["session"]))
    return told


def story_of_many() -> Told:
    """Losses, a refused login, a session beside them."""
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.session(1.0, 1.1, end="refused", replaces=0, login_status=0x0203)
    told.login(1.05, 1, 2, 3, status_text="not found")
    told.session(4.0, 8.0, end="closed", replaces=1, fin_to_initiator_ns=8.0)
    told.reads(2, 4.5, 20)
    told.session(9.0, 40, replaces=2)
    told.reads(3, 9.5, 20)
    told.session(0.3, 40, isid="90")
    told.reads(4, 0.4, 20)
    return told


@given(st.permutations(range(5)))
@settings(max_examples=25, deadline=None)
def test_the_numbers_of_sessions_change_no_finding(numbers: list[int]) -> None:
    def facts(diagnosis: Diagnosis) -> list[Any]:
        return sorted(
            (each.name, each.spans, each.cost_ns, each.is_final, each.frames, len(each.sessions))
            for opinion in diagnosis.stories
            for each in opinion.findings
        )

    assert facts(renumbered(story_of_many(), numbers).diagnosis()) == facts(story_of_many().diagnosis())


@pytest.mark.parametrize("is_one_story", [True, False])
def test_the_cost_of_many_sessions_is_linear(is_one_story: bool) -> None:
    """Eight times the sessions take at most 24 times the processor time; squared it would be 64 times."""

    def cost(count: int) -> float:
        told = Told()
        for number in range(count):
            first = 2.0 * number if is_one_story else 0.0
            told.session(first, first + 0.5, end="reset", rst_to_initiator_ns=first + 0.5, isid=f"{number:x}")
            if is_one_story:
                told.rows["sessions"][-1] |= {"isid": "80", "replaces": number - 1 if number else None}
            told.connection(first + 1, first + 1.1, syn_ns=first + 1, is_refused=True, rst_to_initiator_ns=first + 1.1)
        source = told.source()
        sessions = sessions_of(source)
        begin = time.process_time()
        surroundings = Surroundings(source)
        for story in stories.find(source):
            registry.findings_of(History(story, sessions, surroundings), registry.of_scopes("story"))
        return time.process_time() - begin

    assert cost(1200) < 24 * cost(150)


RECORDED = [
    # from the scenario: who ended it, and how long the target accepted no login at least
    ("rst-target-tgt", "The target reset the connection", 0),
    ("target-restart-lio", "The target closed the connection", 4),
    # the path is down for 10 s; at the target's tap a NOP-In has no answer, and the RST comes when the path is back
    ("black-out-lio", "after an unanswered NOP", 5),
]


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize(("name", "sentence", "least_s"), RECORDED)
def test_recordings_of_kernels(name: str, sentence: str, least_s: float, tap: str) -> None:
    if (name, tap) == ("black-out-lio", "initiator"):
        pytest.skip("commands waited from the start of the black-out on: an outage, which leads")
    trace = iscsitrace.read(VECTORS / name / f"{tap}.pcapng.gz", tables=NEEDED)
    diagnosis = examine(trace.table)
    finding = found(diagnosis)
    assert finding
    assert sentence in finding.text
    assert finding.cost_ns
    assert least_s * SECOND <= finding.cost_ns <= (least_s + 5) * SECOND
    assert diagnosis.headline
    assert diagnosis.headline.name == "connection_lost"


def failing_over(*, again: bool = True) -> Told:
    """One volume over two sessions; the first path is lost at 0.5 s with a read in flight."""
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.session(0, 20, isid="81", target_name="iqn.other")
    naa = "naa.6001405c86130259b4c4d2a9b1b0008a"
    for session in (0, 1):
        told.add("logical_units", session=session, lun=0, peripheral_qualifier=0, device_type=0, designator=naa)
        told.reads(session, 0.0, 20)
    told.read(0, 0.3, None, lba=640, block_count=32)
    told.read(1, 5.4, 5.5, lba=640 if again else 672, block_count=32)
    return told


def test_commands_that_another_path_took_over() -> None:
    finding = found(failing_over().diagnosis())
    assert finding
    assert "The initiator reissued it over another path (session 1); the last completed 5.0 s after" in finding.text
    assert (finding.cost_ns, finding.is_final) == (5 * SECOND, False)


def test_another_path_that_reads_something_else() -> None:
    finding = found(failing_over(again=False).diagnosis())
    assert finding
    assert finding.is_final
    assert "another path" not in finding.text


def test_a_host_that_repeats_and_closes_after_the_new_login_does_not_end_the_silence() -> None:
    """The target answered all and heard nothing more; then the initiator's old connection repeats its command."""
    told = Told()
    late: dict[str, Any] = {"time_last_to_target_ns": 11.0, "time_last_to_initiator_ns": 11.1}
    told.session(0, 11.1, **late, data_last_to_target_ns=11.0, data_last_to_initiator_ns=2.0, rst_to_initiator_ns=11.1)
    told.reads(0, 0.0, 20)
    told.session(9.0, 20, replaces=0)
    told.reads(1, 9.5, 20)
    finding = found(told.diagnosis())
    assert finding
    assert "The connection fell silent at 2.00 s. The initiator logged in again 7.0 s later" in finding.text


# --- what else shows whose fault it was


def after_pings(*waits: float, side: str = "target") -> Told:
    """Losses of a session, each so long after a NOP without an answer."""
    told = Told()
    fin = f"fin_to_{side}_ns"
    first = 0.0
    for number, wait in enumerate(waits):
        told.session(
            first, first + 1 + wait, end="closed", replaces=number - 1 if number else None, **{fin: first + 1 + wait}
        )
        told.reads(number, first + 0.1, 20)
        told.add("nops", connection=number, request_ns=first + 1, response_ns=None, is_ping=True)
        first += 1 + wait + 1
    told.session(first, first + 20, replaces=len(waits) - 1)
    told.reads(len(waits), first + 0.1, 20)
    return told


def test_the_same_wait_before_each_loss_is_a_timer_of_who_ends_it() -> None:
    finding = found(after_pings(5.0, 5.01).diagnosis())
    assert finding
    words = "Each time the initiator closed it 5.0 s after an unanswered NOP: a timer of the initiator."
    assert words in finding.text
    # other waits, and a single one
    for waits in ((5.0, 6.0), (5.0,)):
        other = found(after_pings(*waits).diagnosis())
        assert other
        assert "a timer of" not in other.text


def test_a_logout_without_an_answer_is_where_the_loss_begins() -> None:
    def told(waited: float) -> str:
        told = Told()
        told.session(0, 1 + waited, end="closed", fin_to_target_ns=1 + waited)
        told.reads(0, 0.1, 20)
        told.add("logouts", connection=0, request_ns=1, response_ns=None, reason=0)
        told.session(2 + waited, 40, replaces=0)
        told.reads(1, 3 + waited, 20)
        finding = found(told.diagnosis())
        assert finding
        return finding.text

    assert "for 17.0 s, from 1.00 s to 18.00 s." in told(15)
    assert "The initiator closed the connection at 16.00 s, 15.0 s after an unanswered Logout Request." in told(15)
    # a program that ends does not wait for the answer
    assert "Logout Request" not in told(0.2)


def closed_upon(**columns: Any) -> str:
    """A loss at 0.5 s upon the target's Data-In at 0.45 s."""
    last = {"last_pdu_to_initiator_ns": 0.45, "last_pdu_to_initiator_frame": 77, "last_pdu_opcode_to_initiator": 0x25}
    how = {"fin_to_target_ns": 0.5, "is_last_pdu_new_to_initiator": True} | last | columns
    finding = found(lost(how=how).diagnosis())
    assert finding
    return finding.text


def test_the_first_pdu_of_its_type_before_a_close_is_named() -> None:
    words = "The last PDU before it was the target's first SCSI Data-In (frame 77), 50.0 ms earlier."
    assert words in closed_upon()
    assert "first SCSI Data-In, with a data digest (frame 77)" in closed_upon(data_digest="crc32c")
    # one like many others, one of the login, one long before, and one that its own sender ended
    ordinary: tuple[dict[str, Any], ...] = (
        {"is_last_pdu_new_to_initiator": False},
        {"last_pdu_opcode_to_initiator": 0x23},
        {"last_pdu_to_initiator_ns": -0.6},
        {"fin_to_target_ns": None, "fin_to_initiator_ns": 0.5},
    )
    for columns in ordinary:
        given = {name: value for name, value in columns.items() if value is not None}
        how = {"fin_to_target_ns": 0.5} if "fin_to_initiator_ns" not in given else {}
        last = {"last_pdu_to_initiator_ns": 0.45, "last_pdu_opcode_to_initiator": 0x25}
        finding = found(lost(how=how | {"is_last_pdu_new_to_initiator": True} | last | given).diagnosis())
        assert finding
        assert "The last PDU" not in finding.text, columns


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_sessions_that_a_target_loses_together_have_one_cause(tap: str, tmp_path: Path) -> None:
    load = "read --block-size 32K --one-way-delay 1ms --rate 200Mbit --think-time 50ms --seconds 12 --sessions 3"
    folder = made(f"{load} --fault target-restart,at=3s,for=2s", tmp_path / "run")
    diagnosis = examine(iscsitrace.read(folder / f"{tap}.pcapng", tables=NEEDED).table)
    assert diagnosis.headline
    assert diagnosis.headline.name == "connection_lost"
    finding = found(diagnosis)
    assert finding
    assert "2 other sessions of this target lost their connections at the same time: one cause." in finding.text
    assert "one cause" in diagnosis.headline.text


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_one_session_of_several_that_is_lost_has_a_cause_of_its_own(tap: str, tmp_path: Path) -> None:
    load = "read --block-size 32K --one-way-delay 1ms --rate 200Mbit --think-time 50ms --seconds 12 --sessions 3"
    folder = made(f"{load} --fault D13,nth=40", tmp_path / "run")
    finding = found(examine(iscsitrace.read(folder / f"{tap}.pcapng", tables=NEEDED).table))
    assert finding
    assert "one cause" not in finding.text


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_ping_that_the_target_ignores_is_the_cause_of_the_close(tap: str, tmp_path: Path) -> None:
    load = "read --block-size 32K --one-way-delay 1ms --think-time 6s --bytes 256K"
    folder = made(f"{load} --fault M2,nth=1 --set errors-allowed=9", tmp_path / "run")
    finding = found(examine(iscsitrace.read(folder / f"{tap}.pcapng", tables=NEEDED).table))
    assert finding
    assert finding.text.startswith("The target did not answer the NOP-Out with tag ")
    assert finding.points_to == "the target"
