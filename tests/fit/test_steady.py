"""Steady cycles in synthetic sessions with known cycles: which count, why others do not, and their parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iscsitrace.fit.points import REASONS, Point
from iscsitrace.fit.steady import points, survey
from iscsitrace.measure.intervals import covered_until
from iscsitrace.measure.path import low_ns
from iscsitrace.measure.spans import Commands
from tests.support.story import Story
from tests.support.tables_by_hand import MS, table

READ = (("propagation", 16 * MS), ("transfer", 4 * MS))
"""A read over 8 ms each way; the tap is beside the initiator."""


def fitted(story: Story) -> Point:
    (point,) = points(source(story), "a.pcap")
    return point


def source(story: Story) -> Any:
    """Each command is followed by the next immediately."""
    if not story.rows["senders"]:
        sender = {"connection": 3, "to_target": False, "rwnd_max_bytes": 1 << 20, "segment_bytes": 1448}
        story.rows["senders"].append(sender | {"rtt_count": 100, "owin_max_bytes": 1})
    return story.source()


def test_a_read_with_its_status_in_data_in_takes_two_delays_and_its_block() -> None:
    point = fitted(Story().tasks(11, *READ))
    assert point.name == "a.pcap, session 0, read 128 KiB, QD 1"
    assert point.cycle_count == 10
    assert point.left_out == {"no_period": 1}
    assert point.period_ns == 20 * MS
    assert point.delay_ns.value == 8 * MS
    seen = point.seen
    assert seen.k
    assert seen.service_ns
    assert seen.k.value == pytest.approx(2)
    assert seen.service_ns.value == pytest.approx(0)
    assert seen.transfer_ns.value == 4 * MS
    assert point.setting.c_bytes_per_s == pytest.approx(131_072 / 0.004)
    assert point.throughput_bytes_per_s == pytest.approx(131_072 / 0.020)
    assert not point.setting.is_status_held


def test_a_status_held_for_an_ack_adds_two_delays_and_the_delayed_ack() -> None:
    held = (*READ, ("ack_wait", 56 * MS))
    story = Story().tasks(11, *held, is_status_in_data=False)
    for row in story.rows["cycles"]:
        row["data_first_ns"] = row["command_first_ns"] + 16 * MS
        row["data_last_ns"] = row["command_first_ns"] + 20 * MS
    point = fitted(story)
    assert point.setting.is_status_held
    assert point.seen.k
    assert point.seen.service_ns
    assert point.seen.k.value == pytest.approx(4)
    assert point.seen.service_ns.value == 0
    assert point.seen.ack_delay
    assert point.seen.ack_delay.value == point.setting.ack_delay_ns == pytest.approx(40 * MS)
    assert [(leg.name, round(leg.delays, 3)) for leg in point.seen.legs] == [
        ("command to data", 2.0),
        ("data to status", 2.0),
    ]


def test_parts_add_up_to_the_period() -> None:
    story = Story()
    drawn = np.random.default_rng(5)
    for _ in range(60):
        story.task(("propagation", 16 * MS), ("target_service", int(drawn.exponential(3e6)) + 1), ("transfer", 4 * MS))
    point = fitted(story)
    assert sum(point.parts_ns.values()) == pytest.approx(point.period_ns)


def test_an_outlier_hardly_moves_the_mean() -> None:
    story = Story()
    for number in range(40):
        story.task(*READ, ("target_service", 900 * MS if number == 20 else (number % 7) * 10_000 + 1))
    assert fitted(story).period_ns == pytest.approx(20.03 * MS, rel=0.002)


@pytest.mark.parametrize(
    ("reason", "parts", "columns"),
    [
        ("lossy", (*READ, ("loss_recovery", MS)), {}),
        ("lossy", (*READ, ("congestion_window", 9 * MS)), {"has_retransmission": True}),
        ("incomplete", READ, {"is_complete": False}),
        ("incomplete", READ, {"has_capture_gap": True}),
        ("incomplete", READ, {"is_aborted": True}),
        ("incomplete", (*READ, ("unknown", 2 * MS)), {}),
        ("pause", (*READ, ("initiator_think", 3_000 * MS)), {}),
        ("other_block", READ, {"bytes": 4_096}),
    ],
)
def test_unsteady_cycles_are_left_out_with_their_reason(reason: str, parts: Any, columns: dict[str, Any]) -> None:
    story = Story().tasks(10, *READ).task(*parts, **columns).tasks(10, *READ)
    point = fitted(story)
    assert point.left_out == {reason: 1, "no_period": 1}
    assert point.cycle_count == 19
    assert point.period_ns == 20 * MS
    assert reason in REASONS


def test_a_retransmission_that_nothing_waits_for_leaves_no_cycle_out() -> None:
    story = Story().tasks(10, *READ).tasks(3, *READ, has_retransmission=True).tasks(10, *READ)
    assert fitted(story).left_out == {"no_period": 1}
    # the window that it reduced may hold up later commands
    story.task(*READ, has_retransmission=True).tasks(2, *READ, ("congestion_window", 9 * MS)).tasks(10, *READ)
    assert fitted(story).left_out == {"lossy": 2, "no_period": 1}


def test_growing_windows_are_slow_start_or_after_a_loss_lossy() -> None:
    growing = [(*READ, ("congestion_window", each * MS)) for each in (30, 20, 10)]
    story = Story()
    for parts in growing:
        story.task(*parts)
    story.tasks(10, *READ).task(*READ, ("loss_recovery", 5 * MS))
    for parts in growing:
        story.task(*parts)
    story.tasks(10, *READ)
    assert fitted(story).left_out == {"slow_start": 3, "lossy": 4, "no_period": 1}


def test_slow_start_in_every_cycle_belongs_to_the_workload() -> None:
    """For example after think time, which is no idle gap between bursts of I/O."""
    story = Story().tasks(12, *READ, ("congestion_window", 30 * MS), ("initiator_think", 50 * MS))
    point = fitted(story)
    assert point.left_out == {"no_period": 1}
    assert point.seen.stall_ns == 30 * MS


def test_a_window_full_in_every_cycle_is_a_stall_not_a_delay() -> None:
    point = fitted(Story().tasks(12, *READ, ("receive_window", 48 * MS)))
    assert point.seen.stall_ns == 48 * MS
    assert point.seen.k
    assert point.seen.k.value == pytest.approx(2)


def test_commands_issued_together_are_one_cycle() -> None:
    story = Story()
    for _ in range(8):
        start = story.now
        story.tasks(4, ("propagation", 4 * MS), ("transfer", 4 * MS))
        for row in story.rows["cycles"][-4:]:
            row["command_first_ns"] = row["command_last_ns"] = start
    point = fitted(story)
    assert point.name == "a.pcap, session 0, read 512 KiB as 4 commands at once, QD 1"
    assert point.setting.block_bytes == 4 * 131_072
    assert point.period_ns == 32 * MS
    assert point.cycle_count == 28
    assert point.left_out == {"no_period": 4}


def test_the_period_of_a_full_queue_is_the_time_between_completions() -> None:
    story = Story().tasks(40, ("propagation", 2 * MS), ("transfer", MS))
    first = story.rows["cycles"][0]["command_first_ns"]
    # four at once, of which the first takes 12 ms, and from then on a status and a command every 3 ms
    for number, row in enumerate(story.rows["cycles"]):
        row["command_first_ns"] = first + (number * 3 * MS if number > 3 else 0)
        row["status_ns"] = first + (number + 4) * 3 * MS
    point = fitted(story)
    assert point.name.endswith("QD 4")
    assert point.seen.k is None
    assert point.period_ns == pytest.approx(12 * MS)
    assert point.throughput_bytes_per_s == pytest.approx(131_072 / 0.003)


def test_the_queue_depth_at_a_tap_beside_the_target() -> None:
    rows = [
        # each status follows its command by 1 us, and the next command comes one RTT of 16 ms later
        {"command_first_ns": start * 2 * MS, "status_ns": start * 2 * MS + 1_000, "bytes": 512, "operation": "read"}
        for start in range(80)
    ]
    assert Commands(table("cycles", *rows)).depth.max() == 1
    assert set(Commands(table("cycles", *rows), 16 * MS).depth[20:].tolist()) <= {6, 7, 8}


@pytest.mark.parametrize(
    ("story", "why"),
    [
        (Story(), "no reads or writes of data"),
        (Story(rtt_to_target_ns=None).tasks(9, *READ), "RTT unknown: no RTT to the target was measured"),
        (Story(rtt_to_target_ns=0).tasks(9, *READ), "RTT unknown: the measured RTT is 0"),
        (
            Story().tasks(2, *READ),
            "2 reads, too few of them steady: a fit needs 2 of one I/O size (1 no_period: no command followed)",
        ),
        (
            Story().tasks(3, *READ, is_complete=False),
            "(1 no_period: no command followed; 2 incomplete: part of it is missing from the capture,",
        ),
    ],
)
def test_missing_points_are_reported(story: Story, why: str) -> None:
    found = survey(source(story), "a.pcap")
    assert not found.points
    assert why in str(found.missing[0])


def test_reads_and_writes_are_separate_points() -> None:
    story = Story().tasks(10, *READ).tasks(10, *READ, operation="write")
    assert [point.setting.operation for point in points(source(story), "a")] == ["read", "write"]


def test_the_parameters_are_those_of_the_login() -> None:
    story = Story().tasks(10, *READ, operation="write", unsolicited_bytes=65_536)
    keys = {"InitialR2T": "No", "ImmediateData": "No", "FirstBurstLength": "65536", "MaxBurstLength": "1048576"}
    for key, value in (keys | {"MaxOutstandingR2T": "4", "MaxRecvDataSegmentLength": "262144"}).items():
        story.add("parameters", key=key, effective_target=value)
    found = fitted(story).setting.solicitation
    assert (found.is_initial_r2t, found.is_immediate_data) == (False, False)
    assert (found.first_burst_bytes, found.max_burst_bytes) == (65_536, 1_048_576)
    assert (found.max_outstanding_r2t, found.max_recv_data_segment_bytes) == (4, 262_144)


def test_a_session_without_writes_has_its_parameters_as_negotiated() -> None:
    story = Story().tasks(10, *READ)
    for key, value in {"InitialR2T": "No", "ImmediateData": "No", "MaxBurstLength": "1048576"}.items():
        story.add("parameters", key=key, effective_target=value)
    found = fitted(story).setting.solicitation
    assert (found.is_initial_r2t, found.is_immediate_data, found.max_burst_bytes) == (False, False, 1_048_576)


def test_unused_write_parameters_do_not_count() -> None:
    """InitialR2T=No and ImmediateData=Yes, but the initiator waits for R2Ts, and the target requests smaller bursts."""
    story = Story().tasks(10, *READ, operation="write")
    story.rows["rounds"] += [{"cycle": number, "desired_data_transfer_length": 32_768} for number in range(10)]
    for key, value in {"InitialR2T": "No", "ImmediateData": "Yes", "MaxBurstLength": "262144"}.items():
        story.add("parameters", key=key, effective_target=value)
    found = fitted(story).setting.solicitation
    assert (found.is_initial_r2t, found.is_immediate_data, found.max_burst_bytes) == (True, False, 32_768)


def test_the_parameters_of_a_session_are_those_of_its_leading_connection() -> None:
    story = Story().tasks(10, *READ, operation="write", unsolicited_bytes=65_536)
    story.rows["connections"].append(story.connection | {"connection": 5, "stream_bytes_to_target": 9_000_000})
    for connection, value in ((3, "No"), (5, "Yes")):
        story.add("parameters", connection=connection, key="InitialR2T", effective_target=value)
    assert not fitted(story).setting.solicitation.is_initial_r2t


def test_without_a_login_the_parameters_are_inferred() -> None:
    story = Story().tasks(10, *READ, operation="write", immediate_bytes=8_192, unsolicited_bytes=0)
    rows = [{"cycle": number, "desired_data_transfer_length": 32_768} for number in range(10)]
    story.rows["rounds"] += rows
    found = fitted(story).setting.solicitation
    assert (found.is_initial_r2t, found.is_immediate_data) == (True, True)
    assert (found.max_burst_bytes, found.max_recv_data_segment_bytes) == (32_768, 8_192)


def test_the_rtt_is_at_most_its_fastest_sample() -> None:
    assert low_ns(8 * MS, 8 * MS, 10) == 8 * MS
    drawn = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        samples = 5e6 + drawn.exponential(1e6, 50)
        covered += low_ns(float(samples.min()), float(np.median(samples)), 50) <= 5e6
    assert 0.92 <= covered / 400 <= 0.98


_SETS = st.lists(st.integers(1, 9), max_size=12)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_SETS, st.lists(st.integers(-5, 80), min_size=1, max_size=9))
def test_covered_time_against_counting_instants(lengths: list[int], instants: list[int]) -> None:
    edges = np.cumsum([0, *lengths])
    starts, ends = edges[:-1][::2], edges[1:][::2]
    covered = {place for first, last in zip(starts, ends, strict=True) for place in range(first, last)}
    found = covered_until(starts, ends, np.array(instants))
    assert found.tolist() == [sum(place < instant for place in covered) for instant in instants]
