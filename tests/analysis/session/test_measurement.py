"""What `measure` takes from the time breakdown, and when it measures nothing."""

from __future__ import annotations

from iscsitrace.analysis.model.setting import Setting
from iscsitrace.analysis.session.grouping import sessions_of
from iscsitrace.analysis.session.measurement import Measured, measure
from iscsitrace.analysis.session.situation import Situation
from tests.support.story import Story
from tests.support.tables_by_hand import MS

BLOCK = 131_072


def measured(story: Story) -> Measured | None:
    return measure(sessions_of(story.source())[0])


def test_losses_are_recoveries_and_the_waits_for_the_congestion_window_after_them() -> None:
    story = Story().tasks(4, ("propagation", 16 * MS), ("congestion_window", 3 * MS))
    story.add("recoveries", time_first_ns=story.now)
    story.tasks(4, ("propagation", 16 * MS), ("loss_recovery", 5 * MS), ("congestion_window", 5 * MS))
    found = measured(story)
    assert found
    assert (found.task_count, found.bytes, found.busy_ns) == (8, 8 * BLOCK, (4 * 19 + 4 * 26) * MS)
    stalls = found.situation.stalls_ns_per_byte
    assert stalls["loss"] * found.bytes == 4 * (5 + 5) * MS
    assert stalls["slow_start"] * found.bytes == 4 * 3 * MS
    assert found.throughput_bytes_per_s == found.bytes * 1e9 / found.busy_ns


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
