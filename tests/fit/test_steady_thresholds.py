"""Steady cycles and their limiters: both sides of each threshold, on synthetic sessions with known cycles."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import Any

import numpy as np
import pytest

from iscsitrace.fit.points import Point
from iscsitrace.fit.regression import fit
from iscsitrace.fit.robust import student_975
from iscsitrace.fit.steady import _estimate, points, survey
from iscsitrace.measure.spans import Commands
from tests.support.story import Story
from tests.support.tables_by_hand import MS, table

KIB = 1024
BLOCK = 128 * KIB
READ = (("propagation", 16 * MS), ("transfer", 4 * MS))
"""A read over 8 ms each way; the tap is beside the initiator."""
SENDER = {"to_target": False, "rwnd_max_bytes": 1 << 20, "segment_bytes": 1448, "rtt_count": 100}


def points_of(story: Story, *senders: dict[str, Any]) -> list[Point]:
    for sender in senders or (SENDER,):
        story.add("senders", **sender)
    return points(story.source(), "a.pcap")


def point_of(story: Story, *senders: dict[str, Any]) -> Point:
    (point,) = points_of(story, *senders)
    return point


def over_two(story: Story) -> Story:
    """The commands alternate between connections 3 and 4."""
    story.rows["connections"].append(story.connection | {"connection": 4})
    for row in story.rows["cycles"][1::2]:
        row["connection"] = 4
    return story


# --- points


def test_two_cycles_make_a_point_and_one_does_not() -> None:
    assert point_of(Story().tasks(3, *READ)).cycle_count == 2
    found = survey(Story().tasks(2, *READ).add("senders", **SENDER).source(), "a")
    assert not found.points
    why = "2 reads, too few of them steady: a fit needs 2 of one I/O size (1 no_period: no command followed)"
    assert [str(each) for each in found.missing] == [f"a, session 0: {why}"]


@pytest.mark.parametrize(("count", "sizes"), [(16, {8 * KIB, BLOCK}), (15, {BLOCK})])
def test_a_block_size_with_a_tenth_of_the_bytes_belongs_to_the_workload(count: int, sizes: set[int]) -> None:
    """Nine blocks of 128 KiB are nine tenths of 1280 KiB."""
    found = points_of(Story().tasks(count, *READ, bytes=8 * KIB).tasks(9, *READ))
    assert {point.setting.block_bytes for point in found} == sizes
    others = [point.left_out.get("other_block") for point in found if point.setting.block_bytes == BLOCK]
    assert others == [None if len(sizes) > 1 else 15]


@pytest.mark.parametrize(("reads", "operations"), [(18, ["write", "read"]), (19, ["read"])])
def test_an_operation_with_a_tenth_of_the_bytes_is_a_point(reads: int, operations: list[str]) -> None:
    found = points_of(Story().tasks(2, *READ, operation="write").tasks(reads, *READ))
    assert sorted(point.setting.operation for point in found) == sorted(operations)


def test_reads_without_a_point_leave_that_of_the_writes() -> None:
    """Few reads, or reads that are all incomplete."""
    for columns in ({"bytes": 4 * KIB}, {"is_complete": False}):
        story = Story().tasks(5, *READ, **columns).tasks(9, *READ, operation="write")
        assert [point.setting.operation for point in points_of(story)] == ["write"]


# --- which cycles count


@pytest.mark.parametrize(("unknown_ns", "left_out"), [(990_000, 0), (1_010_000, 12)])
def test_a_twentieth_of_a_period_may_be_unknown(unknown_ns: int, left_out: int) -> None:
    parts = (("propagation", 15 * MS), ("transfer", 5 * MS - unknown_ns), ("unknown", unknown_ns))
    point = point_of(Story().tasks(12, *parts).tasks(10, *READ))
    assert point.left_out.get("incomplete", 0) == left_out


@pytest.mark.parametrize(("first_ns", "left_out"), [(390_000, 0), (410_000, 1)])
def test_a_first_cycle_with_a_longer_wait_is_slow_start(first_ns: int, left_out: int) -> None:
    point = point_of(Story().task(*READ, ("congestion_window", first_ns)).tasks(20, *READ))
    assert point.left_out.get("slow_start", 0) == left_out


@pytest.mark.parametrize("part", ["receive_window", "congestion_window", "send_buffer"])
def test_all_waits_for_windows_count_together(part: str) -> None:
    """Windows grow: the first cycles wait for one of them, the later ones for a full send buffer."""
    story = Story().tasks(3, *READ, (part, 10 * MS)).tasks(20, *READ, ("send_buffer", 10 * MS))
    assert point_of(story).left_out == {"no_period": 1}
    story = Story().tasks(3, *READ, (part, 11 * MS)).tasks(20, *READ, ("send_buffer", 10 * MS))
    assert point_of(story).left_out == {"slow_start": 3, "no_period": 1}


@pytest.mark.parametrize(("first_ns", "left_out"), [(7_900_000, 0), (8_100_000, 1)])
def test_with_scattered_waits_three_median_deviations_are_allowed(first_ns: int, left_out: int) -> None:
    """Waits are 4 ms and 6 in turn: 5 in the middle, and 1 off."""
    story = Story().task(*READ, ("receive_window", first_ns))
    for number in range(20):
        story.task(*READ, ("receive_window", (4 + 2 * (number % 2)) * MS))
    assert point_of(story).left_out.get("slow_start", 0) == left_out


@pytest.mark.parametrize(("whole", "left_out"), [(2, 1), (3, 10)])
def test_a_window_has_recovered_when_a_wait_is_in_the_lowest_tenth(whole: int, left_out: int) -> None:
    """Of 21 cycles two or three do not wait, the others 0.6 ms, also after a loss: more than 0.4, a fiftieth of 20."""
    waits = (*READ, ("congestion_window", 600_000))
    story = Story().tasks(whole, *READ).tasks(12 - whole, *waits)
    story.task(*READ, ("loss_recovery", 5 * MS)).tasks(10, *waits)
    assert point_of(story).left_out == {"lossy": left_out, "no_period": 1}


def test_an_incomplete_cycle_with_waits_is_left_out_once() -> None:
    waits = (*READ, ("congestion_window", 5 * MS))
    point = point_of(Story().task(*waits, is_complete=False).tasks(20, *READ))
    assert (point.left_out, point.cycle_count) == ({"incomplete": 1, "no_period": 1}, 19)


def test_without_an_iscsi_session_there_is_no_point() -> None:
    story = Story()
    story.rows["sessions"].clear()
    story.connection["is_iscsi"] = False
    assert [str(each) for each in survey(story.source(), "a").missing] == ["a: no iSCSI session"]


@pytest.mark.parametrize(("think_ms", "left_out"), [(100, 0), (101, 1)])
def test_a_pause_of_more_than_100_ms_ends_a_burst_of_io(think_ms: int, left_out: int) -> None:
    point = point_of(Story().tasks(10, *READ).task(*READ, ("initiator_think", think_ms * MS)).tasks(10, *READ))
    assert point.left_out.get("pause", 0) == left_out


def test_commands_beside_the_spans_of_a_queue_are_left_out() -> None:
    """Of 40 reads, four at a time, 36 are in nine spans; after them come five small ones."""
    story = Story().kept_filled(40, 4, ("transfer", MS), ("propagation", 9 * MS)).tasks(5, *READ, bytes=4 * KIB)
    point = point_of(story)
    assert (point.cycle_count, point.left_out) == (36, {"other_block": 9})


# --- results of a point


@pytest.mark.parametrize(("wait_ns", "window_bytes"), [(400_000, None), (420_000, 14_480)])
def test_blocks_start_in_slow_start_if_its_waits_take_a_fiftieth(wait_ns: int, window_bytes: int | None) -> None:
    """After pauses, the sender restarts with a window of ten segments (RFC 6928)."""
    story = Story().tasks(12, *READ, ("congestion_window", wait_ns))
    assert point_of(story, SENDER | {"restart_after_idle_count": 9}).setting.start_window_bytes == window_bytes
    assert point_of(Story().tasks(12, *READ, ("congestion_window", wait_ns))).setting.start_window_bytes is None


def queued(transfer_ns: int, window_ns: int = 0, window_bytes: int = 1 << 20) -> Point:
    """Four reads at a time at an RTT of 16 ms, one every 10 ms, with these times on the line and window-limited."""
    rest = ("propagation", 10 * MS - transfer_ns - window_ns)
    story = Story().kept_filled(40, 4, ("transfer", transfer_ns), ("receive_window", window_ns), rest)
    return point_of(story, SENDER | {"rwnd_max_bytes": window_bytes})


def test_the_line_limits_a_queue_if_it_is_busy_for_nine_tenths() -> None:
    assert queued(9_010_000).seen.bound == "line"
    point = queued(8_990_000)
    assert point.seen.bound == "cycle"
    assert point.setting.queue_depth == 4
    assert point.period_ns == pytest.approx(40 * MS)
    assert point.throughput_bytes_per_s == pytest.approx(BLOCK / 0.010)


def test_windows_limit_a_queue_if_half_of_its_waits_are_for_them() -> None:
    # 8 ms of waits, and a window used to 80 % per RTT
    assert queued(2 * MS, 3_990_000, 2 * BLOCK).seen.bound == "cycle"
    assert queued(2 * MS, 4_010_000, 2 * BLOCK).seen.bound == "window"


def test_a_window_used_to_less_than_four_fifths_has_a_slow_receiver() -> None:
    """A block in 10 ms is 1.6 in a round trip of 16: four fifths of a window of two."""
    window = queued(2 * MS, 5 * MS, 2 * BLOCK)
    assert window.seen.bound == "window"
    assert window.setting.c_bytes_per_s == pytest.approx(BLOCK / 0.002)
    receiver = queued(2 * MS, 5 * MS, 2 * BLOCK + 512)
    assert receiver.seen.bound == "receiver"
    # what it takes is the pace then
    assert receiver.setting.c_bytes_per_s == pytest.approx(BLOCK / 0.010)


def test_windows_of_several_connections_are_summed() -> None:
    """1.6 blocks in a round trip are less than four fifths of two windows of one and a half, and more than of one."""
    story = Story().kept_filled(40, 4, ("transfer", 2 * MS), ("receive_window", 5 * MS), ("propagation", 3 * MS))
    over_two(story)
    window = SENDER | {"rwnd_max_bytes": 3 * BLOCK // 2}
    for connection in (3, 4):
        story.rows["senders"].append(window | {"connection": connection})
    (point,) = points(story.source(), "a")
    assert point.setting.connections == 2
    assert point.seen.bound == "receiver"


@pytest.mark.parametrize(("wait_ns", "is_held"), [(0, False), (7_990_000, False), (8_000_000, True)])
def test_a_separate_status_is_held_if_it_waits_for_a_delay(wait_ns: int, is_held: bool) -> None:
    story = Story().tasks(12, *READ, ("ack_wait", wait_ns), is_status_in_data=False)
    assert point_of(story).setting.is_status_held == is_held


@pytest.mark.parametrize(("path_ns", "names"), [(410_000, ["data to status"]), (390_000, [])])
def test_a_delay_within_a_twentieth_is_counted(path_ns: int, names: list[str]) -> None:
    story = Story().tasks(12, *READ, ("propagation", path_ns))
    for row in story.rows["cycles"]:
        row["data_first_ns"] = row["command_first_ns"] + 16 * MS
        row["data_last_ns"] = row["command_first_ns"] + 20 * MS
    assert [leg.name for leg in point_of(story).seen.legs] == ["command to data", *names]


@pytest.mark.parametrize(("k_ms", "k"), [(24.2, 4), (23.8, 2)])
def test_delays_that_are_a_quarter_off_come_from_the_packets(k_ms: float, k: int) -> None:
    """A held status pays four delays of 8 ms; three, less a little, are nearer to two than to four."""
    story = Story().tasks(12, ("propagation", round(k_ms * MS) - 9 * MS), ("transfer", MS), ("ack_wait", 9 * MS))
    for row in story.rows["cycles"]:
        row["is_status_in_data"] = False
    point = point_of(story)
    assert point.setting.is_status_held
    assert point.seen.k
    assert point.seen.k.value == pytest.approx(k_ms / 8)
    assert fit([point]).k_of_legs == k


PAUSED_WRITE = (
    *(("propagation", 1_200_000), ("transfer", 100_000)),
    *(("propagation", 1_400_000), ("transfer", 100_000)),
    *(("propagation", 3 * MS), ("initiator_service", MS), ("transfer", 200_000)),
    *(("propagation", 3 * MS), ("initiator_think", MS)),
)
"""A write at an RTT of 3 ms; its host pauses for 1.2 and 1.4 ms in the unsolicited data. The path is 4 delays."""


def paused_writes(pauses: int = 0) -> Story:
    """Nine of these writes; with more pauses in the data that the R2T asked for."""
    story = Story(rtt_to_target_ns=3 * MS)
    pause = (("propagation", MS), ("transfer", 100_000)) * pauses
    for _ in range(9):
        start = story.now
        late = start + pauses * 1_100_000
        instants = {"command_last_ns": start + 2_800_000, "r2t_first_ns": start + 5_800_000, "r2t_count": 1}
        data = {"data_first_ns": start + 6_800_000, "data_last_ns": late + 7_000_000, "status_ns": late + 10 * MS}
        story.task(*PAUSED_WRITE[:7], *pause, *PAUSED_WRITE[7:], operation="write", **instants, **data)
    return story


def test_pauses_of_a_host_that_are_shorter_than_the_rtt_are_no_delays_of_the_path() -> None:
    sender = SENDER | {"to_target": True}
    seen = point_of(paused_writes(), sender).seen
    assert seen.k
    assert seen.k.value == pytest.approx(4)
    assert [(leg.name, round(leg.delays, 9)) for leg in seen.legs] == [("command to R2T", 2), ("data to status", 2)]
    # both pauses, the wait before the solicited data and the think time are the host's
    assert seen.service_ns
    assert seen.service_ns.value == pytest.approx((1.2 + 1.4 + 1 + 1) * MS)


def test_an_r2t_explains_one_rtt_of_the_waits_for_its_data() -> None:
    """Waits of four and of five milliseconds for the data of one R2T, at an RTT of 3: one of them is the path's."""
    for pauses in (4, 5):
        seen = point_of(paused_writes(pauses), SENDER | {"to_target": True}).seen
        assert seen.k
        assert seen.k.value == pytest.approx(4 + 2)


def test_a_pause_within_the_data_of_a_read_is_no_delay_of_the_path() -> None:
    """The target sends its data in two parts, 5 ms apart."""
    story = Story()
    for _ in range(9):
        start = story.now
        data = {"data_first_ns": start + 16 * MS, "data_last_ns": start + 23 * MS}
        story.task(READ[0], ("transfer", MS), ("propagation", 5 * MS), ("transfer", MS), **data)
    seen = point_of(story).seen
    assert seen.k
    assert seen.k.value == pytest.approx(2)
    assert seen.service_ns
    assert seen.service_ns.value == pytest.approx(5 * MS)


def test_an_estimate_has_the_standard_error_of_its_mean() -> None:
    """1, 2, 3 and 4: the variance of the mean is 5/12."""
    found = _estimate(np.array([1, 2, 3, 4]), np.ones(4))
    half = student_975(3) * sqrt(5 / 12)
    assert (found.value, found.low, found.high) == pytest.approx((2.5, 2.5 - half, 2.5 + half))
    assert found.source == "packets"
    assert _estimate(np.array([0, 9]), np.ones(2)).low == 0


@pytest.mark.parametrize("sender", [{"rwnd_max_bytes": None}, {"is_window_scale_inferred": True}])
def test_where_the_window_is_unknown_its_waits_are_the_receiver_s(sender: dict[str, Any]) -> None:
    parts = (("transfer", 2 * MS), ("receive_window", 5 * MS), ("propagation", 3 * MS))
    point = point_of(Story().kept_filled(40, 4, *parts), SENDER | sender)
    assert (point.setting.window_bytes, point.seen.bound) == (None, "receiver")
    assert (point.seen.stall_ns, point.seen.legs, point.seen.k, point.seen.service_ns) == (0, (), None, None)
    assert (point.setting.service_ns, point.seen.transfer_ns.value) == (0, 10 * MS)
    assert point.throughput_bytes_per_s == pytest.approx(BLOCK / 0.010, rel=1e-12)


def test_two_commands_at_once_are_named_so() -> None:
    story = Story()
    for _ in range(8):
        start = story.now
        story.tasks(2, *READ)
        for row in story.rows["cycles"][-2:]:
            row["command_first_ns"] = row["command_last_ns"] = start
    point = point_of(story)
    assert point.name == "a.pcap, session 0, read 256 KiB as 2 commands at once, QD 1"
    assert (point.cycle_count, point.left_out, point.setting.queue_depth) == (14, {"no_period": 2}, 1)
    # an incomplete second command makes its call incomplete
    story.rows["cycles"][5]["is_complete"] = False
    assert points(story.source(), "a")[0].left_out == {"no_period": 2, "incomplete": 2}


def test_a_read_without_time_on_the_line_has_no_rate() -> None:
    point = point_of(Story().tasks(9, ("propagation", 16 * MS), ("target_service", 3 * MS)))
    assert (point.setting.c_bytes_per_s, point.seen.transfer_ns.value) == (None, 0)
    assert point.setting.service_ns == pytest.approx(3 * MS)
    assert (point.seen.stall_ns, point.period_spread_ns) == (0, 0)
    assert point.throughput_bytes_per_s == pytest.approx(BLOCK / 0.019, rel=1e-12)
    assert (point.parts_ns["target_service"], point.parts_ns["transfer"]) == (3 * MS, 0)


def test_the_lower_end_of_the_delay_follows_from_the_samples() -> None:
    """The median RTT is 1 ms above the least of 100 samples."""
    median = {"to_target": True, "rtt_median_ns": 17 * MS, "rtt_count": 100}
    point = point_of(Story().tasks(9, *READ), SENDER, median)
    assert (point.delay_ns.value, point.delay_ns.high, point.delay_ns.source) == (8 * MS, 8 * MS, "packets")
    assert point.delay_ns.low == pytest.approx((16 - log(20) / 100 / log(2)) / 2 * MS)


# --- windows and delays of several connections


def test_the_smallest_window_of_several_connections_limits() -> None:
    story = over_two(Story().kept_filled(40, 2, *READ))
    small = SENDER | {"rwnd_max_bytes": 65_536}
    for windows in ((SENDER, small), (small, SENDER)):
        story.rows["senders"] = [each | {"connection": 3 + place} for place, each in enumerate(windows)]
        (point,) = points(story.source(), "a")
        assert point.setting.window_bytes == 65_536
        assert (point.setting.connections, point.setting.queue_depth) == (2, 1)
    # a window with an unknown scale may be larger
    story.rows["senders"][0]["is_window_scale_inferred"] = True
    assert points(story.source(), "a")[0].setting.window_bytes == 1 << 20


def test_a_connection_without_commands_does_not_limit() -> None:
    story = Story().kept_filled(40, 2, *READ)
    story.rows["connections"].append(story.connection | {"connection": 4})
    point = point_of(story, SENDER, SENDER | {"connection": 4, "rwnd_max_bytes": 65_536})
    assert (point.setting.connections, point.setting.window_bytes) == (1, 1 << 20)


@pytest.mark.parametrize(("stream_bytes", "delay_ms"), [(999_999, 8), (1_000_001, 15)])
def test_the_delay_is_that_of_the_busiest_connection(stream_bytes: int, delay_ms: int) -> None:
    story = Story().tasks(12, *READ)
    other = {"connection": 4, "rtt_to_target_min_ns": 30 * MS, "stream_bytes_to_initiator": stream_bytes}
    story.rows["connections"].append(story.connection | other)
    assert point_of(story).delay_ns.value == delay_ms * MS


def test_the_delay_of_a_fit_is_the_median() -> None:
    made = {}
    for delay_ms in (8, 2, 4):
        story = Story(rtt_to_target_ns=2 * delay_ms * MS)
        made[delay_ms] = point_of(story.tasks(12, ("propagation", 2 * delay_ms * MS), ("transfer", MS)))
    for order in ((8, 2, 4), (2, 4, 8), (4, 8, 2)):
        assert fit([made[delay_ms] for delay_ms in order]).d_ns.value == 4 * MS


@pytest.mark.parametrize(("share", "is_said"), [(0.099, False), (0.101, True)])
def test_unexplained_waits_are_reported_from_a_tenth_of_the_period_on(share: float, is_said: bool) -> None:
    point = point_of(Story().tasks(12, *READ))
    point = replace(point, seen=replace(point.seen, stall_ns=share * 20 * MS))
    assert any(said.startswith("windows:") for said in fit([point]).undetermined) == is_said


# --- spans


@pytest.mark.parametrize(("gap_ns", "depth"), [(11_990_000, 2), (12_010_000, 1)])
def test_no_command_follows_a_status_within_three_quarters_of_the_rtt(gap_ns: int, depth: int) -> None:
    rows = [
        {"command_first_ns": number * (MS + gap_ns), "status_ns": number * (MS + gap_ns) + MS}
        | {"bytes": 512, "operation": "read"}
        for number in range(20)
    ]
    assert Commands(table("cycles", *rows), 16 * MS).depth.max() == depth


@pytest.mark.parametrize(("deeper", "depth"), [(9, 4), (12, 8)])
def test_the_queue_depth_is_the_ninth_decile(deeper: int, depth: int) -> None:
    """A hundred reads, four at a time; during this many of them four reads of another size are in flight."""
    rows = [
        {"command_first_ns": number * MS, "status_ns": (number + 4) * MS, "bytes": BLOCK, "operation": "read"}
        for number in range(100)
    ]
    rows += [
        {"command_first_ns": 20 * MS + 100 + place, "status_ns": (20 + deeper) * MS + 200 + place}
        | {"bytes": 4 * KIB, "operation": "read"}
        for place in range(4)
    ]
    (found,) = [spans for spans in Commands(table("cycles", *rows)).spans() if spans.block_bytes == BLOCK]
    assert found.queue_depth == depth


@pytest.mark.parametrize(("others", "spans"), [(0, 5), (1, 4)])
def test_a_span_of_a_queue_has_only_commands_that_follow_one_another(others: int, spans: int) -> None:
    """Two reads in flight: twelve of 128 KiB, after six of which another size may come."""
    sizes = [BLOCK] * 6 + [4 * KIB] * others + [BLOCK] * 6
    rows = [
        {"command_first_ns": number * MS, "status_ns": (number + 2) * MS, "bytes": size, "operation": "read"}
        for number, size in enumerate(sizes)
    ]
    (found,) = [spans for spans in Commands(table("cycles", *rows)).spans() if spans.block_bytes == BLOCK]
    assert (found.queue_depth, len(found.first)) == (2, spans)


@pytest.mark.parametrize(("last_kib", "together"), [(514, True), (515, False)])
def test_half_of_the_bytes_have_to_come_in_equal_groups(last_kib: int, together: bool) -> None:
    """Four groups of four blocks are 2 MiB; so are pairs of other sizes, no two alike."""
    groups = [[BLOCK] * 4] * 4 + [[256 * KIB, (each - 256) * KIB] for each in (510, 511, 513, last_kib)]
    rows, at = [], 0
    for group in groups:
        for place, size in enumerate(group):
            times = {"command_first_ns": at + place, "status_ns": at + 10 * MS + place}
            rows.append(times | {"bytes": size, "operation": "read"})
        at += 20 * MS
    found = [spans.together for spans in Commands(table("cycles", *rows)).spans() if spans.together > 1]
    assert found == ([4] if together else [])
