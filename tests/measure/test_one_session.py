"""`model fit` and `diagnose` describe a session alike: delay, block size, queue depth, R2Ts, held status and window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.findings import NEEDED
from iscsitrace.fit.conditions import Conditions
from iscsitrace.fit.points import Point
from iscsitrace.fit.situation import Measured, measure
from iscsitrace.fit.steady import survey
from iscsitrace.measure.grouping import sessions_of
from iscsitrace.measure.session import Session
from tests.support.recordings import SUFFIXES, recorded_captures
from tests.support.story import Story
from tests.support.tables_by_hand import MS

SAMPLES = Path(__file__).parents[2] / "samples"
CAPTURES = [
    *recorded_captures(),
    *sorted(each for each in SAMPLES.glob("*/capture*") if each.name.endswith(SUFFIXES)),
]

READ = (("propagation", 16 * MS), ("transfer", 4 * MS))


def described(capture: Path) -> Iterator[tuple[Session, Measured | None, list[Point]]]:
    """Every session as `diagnose` describes it, and its points as `model fit` makes them."""
    source = iscsitrace.read(capture, tables=NEEDED).table
    points = survey(source, "x").points
    for number, session in sessions_of(source).items():
        yield session, measure(session), [each for each in points if each.session == number]


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_fit_and_diagnosis_describe_each_session_alike(capture: Path) -> None:
    for session, measured, points in described(capture):
        for point in points:
            conditions, setting = Conditions(session, point.setting.operation), point.setting
            assert session.path
            assert (setting.delay_ns, point.delay_ns.value) == (session.path.delay_ns, session.path.delay_ns)
            assert setting.solicitation == conditions.solicitation
            assert setting.is_status_held == conditions.is_status_held
            assert setting.segment_bytes == conditions.segment_bytes
            # of a send buffer the window is what these commands carried in an RTT
            is_buffer = conditions.is_held_by_buffer
            assert setting.window_bytes == conditions.window_bytes or is_buffer
            assert setting.connections <= conditions.connection_count
        if measured is None:
            continue
        situation, taken = measured.situation, measured.situation.setting
        own = [point for point in points if point.setting.operation == taken.operation]
        for point in own:
            setting, has_line = point.setting, point.seen.own_line is not None
            is_buffer = Conditions(session, setting.operation).is_held_by_buffer
            if has_line:
                assert setting.c_bytes_per_s == taken.c_bytes_per_s
            alike = replace(
                taken.dealt(),
                block_bytes=setting.block_bytes,
                queue_depth=setting.queue_depth,
                connections=setting.connections,
                c_bytes_per_s=setting.c_bytes_per_s,
                # the rate of bursts counts bytes of I/Os
                data_pdu_bytes=taken.data_pdu_bytes if has_line else None,
                service_ns=setting.service_ns,
                start_window_bytes=setting.start_window_bytes,
                # a what-if has the waits for losses from the time breakdown, a fit without steady commands their rate
                loss=setting.loss,
                window_bytes=setting.window_bytes
                if is_buffer or "window_bytes" in situation.open_names
                else taken.window_bytes,
            )
            assert setting == alike
        if not own:
            continue
        # of several kinds of commands the one that moved most is the workload
        most = max(own, key=lambda point: point.cycle_count * point.setting.block_bytes).setting
        assert session.workload
        assert most.block_bytes == session.workload.block_bytes
        assert most.queue_depth * most.connections == taken.queue_depth
        assert most.connections == taken.dealt().connections


@pytest.mark.skipif(not recorded_captures(), reason="no recorded captures beside the checkout")
def test_the_queue_depth_is_equal_at_both_taps() -> None:
    """Two hosts at queue depth 8 over one line, according to the description of the captures."""
    pair = [each for each in recorded_captures() if each.name.startswith("34_shared_line.")]
    assert len(pair) == 2
    for capture in pair:
        for _, measured, points in described(capture):
            assert measured
            assert measured.situation.setting.queue_depth == 8
            assert [point.setting.queue_depth for point in points] == [8]


@pytest.mark.parametrize(("waited_ms", "is_held"), [(7, False), (8, True)])
def test_a_status_is_held_from_half_an_rtt_on(waited_ms: int, is_held: bool) -> None:
    """The RTT is 16 ms; the fit and the situation use the same threshold."""
    story = Story().tasks(11, *READ, ("ack_wait", waited_ms * MS), is_status_in_data=False)
    (session,) = sessions_of(story.source()).values()
    measured = measure(session)
    assert measured
    (point,) = survey(story.source(), "x").points
    assert (measured.situation.setting.is_status_held, point.setting.is_status_held) == (is_held, is_held)


def test_two_connections_have_the_rtt_of_the_busier_and_the_smaller_window() -> None:
    story = Story().tasks(10, *READ)
    for number, (moved, round_trip_ns, window) in {3: (1_000_000, 16, 1 << 20), 4: (9_000_000, 20, 1 << 22)}.items():
        if number == 4:
            story.rows["connections"].append(story.connection | {"connection": 4})
            story.rows["cycles"][-1]["connection"] = 4
        story.rows["connections"][-1] |= {
            "stream_bytes_to_initiator": moved,
            "rtt_to_target_min_ns": round_trip_ns * MS,
        }
        sender = {"connection": number, "to_target": False, "rwnd_max_bytes": window, "rwnd_min_bytes": window}
        story.rows["senders"].append(sender | {"segment_bytes": 1448, "owin_max_bytes": 1, "line_bytes_per_s": 10**8})
    (session,) = sessions_of(story.source()).values()
    conditions, measured = Conditions(session, "read"), measure(session)
    assert measured
    assert session.path
    assert (session.path.delay_ns, session.rtt_ns("target")) == (10 * MS, 20 * MS)
    assert (conditions.connection_count, conditions.window_bytes) == (2, 1 << 20)
    assert measured.situation.setting.window_bytes == 1 << 20


def test_an_unknown_rtt_of_the_busiest_connection_is_not_taken_from_another() -> None:
    """Only one side of the RTT is known for the busiest connection, both for another one: that one's RTT is used."""
    story = Story(rtt_to_target_ns=None).tasks(10, *READ)
    other = {"connection": 4, "stream_bytes_to_initiator": 1, "rtt_to_target_min_ns": 6 * MS}
    story.rows["connections"].append(story.connection | other | {"rtt_to_initiator_min_ns": 2 * MS})
    (session,) = sessions_of(story.source()).values()
    assert (session.path_ns, session.rtt_ns("target"), session.rtt_ns("initiator")) == (8 * MS, 6 * MS, 2 * MS)
