"""What `measure` takes from the time breakdown, and when it measures nothing."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.fit.situation import Measured, Situation, measure
from iscsitrace.measure.grouping import sessions_of
from iscsitrace.model.setting import Setting
from tests.support.story import Story
from tests.support.tables_by_hand import MS

BLOCK = 131_072


def measured(story: Story) -> Measured | None:
    return measure(sessions_of(story.source())[0])


def test_losses_are_recoveries_and_the_waits_for_the_congestion_window_after_them() -> None:
    story = Story().tasks(4, ("propagation", 16 * MS), ("congestion_window", 3 * MS))
    # before it nothing was lost
    story.add("recoveries", time_first_ns=0, retransmitted_packets=2, spurious_packets=2)
    story.add("recoveries", time_first_ns=story.now, retransmitted_packets=1)
    story.tasks(4, ("propagation", 16 * MS), ("loss_recovery", 5 * MS), ("congestion_window", 5 * MS))
    found = measured(story)
    assert found
    assert (found.task_count, found.bytes, found.busy_ns) == (8, 8 * BLOCK, (4 * 19 + 4 * 26) * MS)
    stalls = found.situation.stalls_ns_per_byte
    assert stalls["loss"] * found.bytes == 4 * (5 + 5) * MS
    assert stalls["slow_start"] * found.bytes == 4 * 3 * MS
    assert found.pace_bytes_per_s == found.bytes * 1e9 / found.busy_ns


def test_without_time_or_data_nothing_is_measured() -> None:
    assert measured(Story().tasks(8)) is None
    assert measured(Story().tasks(8, ("transfer", MS), data_bytes=0)) is None


def test_in_a_queue_the_deviation_of_the_service_time_is_unknown() -> None:
    story = Story().kept_filled(16, 2, ("propagation", 8 * MS), ("target_service", 2 * MS))
    found = measured(story)
    assert found
    assert (found.situation.setting.queue_depth, found.situation.service_deviation_ns) == (2, 0)
    alone = Story()
    for number in range(10):
        alone.task(("propagation", 16 * MS), ("target_service", (2 + 4 * (number % 2)) * MS))
    found = measured(alone)
    assert found
    assert found.situation.service_deviation_ns == 2 * MS


def test_service_times_of_one_command_or_without_a_line_meet_nothing_by_chance() -> None:
    def loss_by_chance(**setting: float) -> float:
        situation = Situation(Setting("read", 65_536, 4 * MS, **setting), service_deviation_ns=8e6)  # type: ignore[arg-type]
        return situation.throughput() / Situation(situation.setting).throughput()

    assert loss_by_chance(c_bytes_per_s=4e7) == 1
    assert loss_by_chance(queue_depth=4) == 1
    assert loss_by_chance(c_bytes_per_s=4e7, queue_depth=4) < 1


def test_connections_are_added_in_groups_like_the_measured_ones() -> None:
    two = Situation(Setting("read", 65_536, 4 * MS, 4e7, connections=2, queue_depth=4))
    shapes = {
        count: (found.groups, found.setting.connections, found.setting.queue_depth)
        for count in (1, 3, 4, 8)
        for found in [two.with_connections(count)]
    }
    assert shapes == {1: (1, 2, 4), 3: (1, 2, 4), 4: (2, 4, 4), 8: (4, 8, 8)}


SENDER = {"to_target": False, "rwnd_min_bytes": 65_536, "rwnd_max_bytes": 65_536, "segment_bytes": 1_448}
READ = ("propagation", 16 * MS)


def test_waits_for_a_known_receive_window_are_the_model_s() -> None:
    """The model computes them from the window; of a window that was shut they are a stall as measured."""
    for smallest, stall_ms in ((65_536, 0), (0, 8 * 3)):
        story = Story().tasks(8, READ, ("receive_window", 3 * MS), ("unknown", MS))
        found = measured(story.add("senders", **SENDER | {"rwnd_min_bytes": smallest}))
        assert found
        stalls = {name: stall * found.bytes for name, stall in found.situation.stalls_ns_per_byte.items()}
        assert stalls == {"loss": 0, "slow_start": 0, "receiver": stall_ms * MS, "outage": 0, "unknown": 8 * MS}
        assert found.situation.setting.window_bytes == (None if stall_ms else 65_536)
        assert ("window_bytes" in found.situation.open_names) == bool(stall_ms)


def window(size_bytes: int) -> dict[str, Any]:
    return {"to_target": False, "rwnd_min_bytes": 1_448, "rwnd_max_bytes": size_bytes, "segment_bytes": 1_448}


def test_what_the_window_does_not_explain_of_its_waits_is_a_stall_of_the_receiver() -> None:
    """68 segments fit into a window of 100,000 bytes, so 128 KiB stop once, for an RTT of 16 ms; they waited for 20."""
    found = measured(Story().tasks(8, READ, ("receive_window", 20 * MS)).add("senders", **window(100_000)))
    assert found
    assert found.situation.stalls_ns_per_byte["receiver"] * found.bytes == pytest.approx(8 * 4 * MS, rel=1e-6)
    assert found.remainder == pytest.approx(1)


def test_time_that_the_model_lacks_elsewhere_is_no_stall_of_the_receiver() -> None:
    """Four commands at a time take 80 ms each of the wire: the model has 16 ms for them, and the window held 1 ms."""
    story = Story().kept_filled(40, 4, ("propagation", 19 * MS), ("receive_window", MS))
    found = measured(story.add("senders", **window(1 << 20)))
    assert found
    stalled_ns = found.situation.stalls_ns_per_byte["receiver"] * found.bytes
    assert stalled_ns == pytest.approx(found.parts_ns["receive_window"]) == pytest.approx(40 * MS)
    assert found.remainder < 0.5


def test_commands_of_unequal_sizes_stop_at_the_window_each_by_its_size() -> None:
    """512 KiB stop twice at a window of 146 segments, 4 KiB never. Their mean, 382,417 bytes, stops once."""
    story = Story().tasks(3, READ, bytes=4_096).tasks(8, READ, ("receive_window", 32 * MS), bytes=524_288)
    found = measured(story.add("senders", **window(146 * 1_448)))
    assert found
    assert found.situation.sizes == ((4_096, 3 / 11), (524_288, 8 / 11))
    assert found.situation.throughput() == pytest.approx(found.bytes * 1e9 / (11 * 16 * MS + 8 * 32 * MS), rel=1e-6)
    assert found.situation.stalls_ns_per_byte["receiver"] == pytest.approx(0, abs=1e-6)
    # a what-if of another I/O size is one of that size alone
    assert found.situation.with_setting(block_bytes=4_096).sizes == ()
    assert found.situation.with_setting(block_bytes=4_096).throughput() == pytest.approx(4_096e9 / (16 * MS))


def test_many_sizes_count_by_powers_of_two() -> None:
    story = Story()
    for number in range(24):
        story.task(READ, bytes=512 * (16 + number))
    found = measured(story)
    assert found
    # 16 to 31 blocks, and 32 to 39
    assert found.situation.sizes == ((12_032, 16 / 24), (18_176, 8 / 24))
    assert measured(Story().tasks(8, READ)).situation.sizes == ()  # type: ignore[union-attr]


def test_the_setting_has_the_largest_data_pdu_and_the_line_rate() -> None:
    story = Story().tasks(8, READ, data_pdu_bytes_max=8_192).task(READ, data_pdu_bytes_max=65_536)
    found = measured(story.add("senders", **SENDER, line_bytes_per_s=5_000_000, restart_after_idle_count=3))
    assert found
    setting = found.situation.setting
    assert (setting.data_pdu_bytes, setting.c_bytes_per_s, setting.start_window_bytes) == (65_536, 5_000_000, None)
    assert found.situation.open_names == frozenset()
    bare = measured(Story().tasks(8, READ, data_pdu_bytes_max=0).add("senders", **SENDER, line_bytes_per_s=0))
    assert bare
    assert (bare.situation.setting.data_pdu_bytes, bare.situation.setting.c_bytes_per_s) == (None, None)
    assert bare.situation.open_names == {"c_bytes_per_s"}


def test_commands_with_immediate_data_only_have_no_data_pdu() -> None:
    story = Story().tasks(8, READ, data_pdu_bytes_max=8_192).task(READ, data_pdu_bytes_max=None)
    found, without = measured(story), measured(Story().tasks(8, READ, data_pdu_bytes_max=None))
    assert found
    assert without
    assert found.situation.setting.data_pdu_bytes == 8_192
    assert without.situation.setting.data_pdu_bytes is None


def test_a_held_status_is_open_only_for_reads_in_a_queue_whose_status_comes_apart() -> None:
    def is_open(depth: int, **columns: Any) -> bool:
        found = measured(Story().kept_filled(40, depth, READ, **columns))
        assert found
        assert found.situation.setting.queue_depth == depth
        return "is_status_held" in found.situation.open_names

    apart = {"is_status_in_data": False}
    assert is_open(2, **apart)
    assert not is_open(1, **apart)
    assert not is_open(2)
    assert not is_open(2, **apart, operation="write")


def test_a_wait_is_paid_by_each_command_in_flight() -> None:
    """24 reads, two at a time, with 1 ms of the target in each slot."""
    found = measured(Story().kept_filled(24, 2, ("propagation", 7 * MS), ("target_service", MS)))
    assert found
    assert found.situation.waits_ns == {
        "target_service": 2 * MS, "initiator_service": 0, "initiator_think": 0, "ack_wait": 0,
    }  # fmt: skip
    assert found.situation.groups == 1


def test_where_a_queue_waits_beyond_the_tap_more_commands_are_in_flight() -> None:
    """The tap sees two, of which one comes each 4 ms; alone one takes 16 ms."""
    for to_initiator_ns, depth in ((2 * MS, 2), (2 * MS + 1_000, 4), (8 * MS, 4)):
        story = Story(rtt_to_target_ns=16 * MS - to_initiator_ns, rtt_to_initiator_ns=to_initiator_ns)
        # at the tap a command is done when its status is on its way
        story.kept_filled(80, 2, ("propagation", 4 * MS))
        for row in story.rows["cycles"]:
            row["status_ns"] -= to_initiator_ns * 3 // 4
        found = measured(story)
        assert found
        assert found.situation.setting.queue_depth == depth


def test_of_as_many_bytes_read_as_written_the_reads_are_measured() -> None:
    story = Story().tasks(8, READ, operation="write").pause(MS).tasks(8, READ)
    found = measured(story)
    assert found
    assert (found.situation.setting.operation, found.task_count) == ("read", 8)
    story.rows["cycles"][0]["data_bytes"] += 512
    found = measured(story)
    assert found
    assert (found.situation.setting.operation, found.situation.setting.block_bytes) == ("write", BLOCK + 64)


@pytest.mark.parametrize(("size", "is_measured"), [(BLOCK - 64, True), (BLOCK, False)])
def test_writes_meanwhile_move_less_than_a_tenth_of_the_bytes_of_reads(size: int, is_measured: bool) -> None:
    story = Story().tasks(5, READ).task(READ, operation="write", bytes=size).tasks(5, READ)
    assert (measured(story) is not None) is is_measured
    # writes before the first read or after the last status do not count
    others = Story().tasks(5, READ, operation="write").pause(MS).tasks(10, READ).pause(MS)
    assert measured(others.tasks(4, READ, operation="write"))


def test_a_write_at_the_instant_of_the_first_command_or_the_last_status_is_meanwhile() -> None:
    for place, name in ((0, "command_first_ns"), (-1, "status_ns")):
        story = Story().tasks(10, READ)
        at = story.rows["cycles"][place][name]
        story.tasks(2, READ, operation="write")
        for row in story.rows["cycles"][-2:]:
            row["command_first_ns"] = at
        assert measured(story) is None


def test_waits_for_the_congestion_window_outside_the_reads_do_not_count() -> None:
    """Writes before and after the reads wait for 5 ms, the reads for 3; the loss comes with the last read."""
    write = (READ, ("congestion_window", 5 * MS))
    story = Story().tasks(2, *write, operation="write").tasks(8, ("congestion_window", 3 * MS), READ)
    story.add("recoveries", time_first_ns=story.now - 19 * MS, retransmitted_packets=1).pause(MS).tasks(
        2, *write, operation="write"
    )
    found = measured(story)
    assert found
    stalls = found.situation.stalls_ns_per_byte
    assert (stalls["slow_start"] * found.bytes, stalls["loss"] * found.bytes) == (7 * 3 * MS, 3 * MS)
    assert found.parts_ns["congestion_window"] == 8 * 3 * MS
    assert found.busy_ns == 8 * 19 * MS


def test_think_time_is_steady_among_the_reads_alone() -> None:
    """Up to ten times their upper quartile is no idle gap; of the writes before them nothing counts."""
    story = Story().tasks(30, READ, ("initiator_think", MS), operation="write", bytes=512)
    found = measured(story.tasks(8, READ, ("initiator_think", 150 * MS)))
    assert found
    assert (found.task_count, found.busy_ns) == (8, 8 * 166 * MS)
