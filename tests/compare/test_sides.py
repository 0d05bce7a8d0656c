"""The figures of one side of `diff`."""

from __future__ import annotations

import pytest

from iscsitrace.compare import sides
from tests.support.story import SENDER, Story
from tests.support.tables_by_hand import MS


def side_of(story: Story) -> sides.Side:
    (side,) = sides.sides_of(story.source()).values()
    return side


def test_the_four_sizes_that_moved_most_are_shown_the_heaviest_first() -> None:
    story = Story()
    for size, count in ((512, 9), (4_096, 2), (8_192, 4), (65_536, 1), (131_072, 2)):
        story.tasks(count, ("transfer", MS), bytes=size)
    side = side_of(story)
    # 4608, 8192, 32768, 65536 and 262144 bytes
    assert list(side.block_sizes.items()) == [(131_072, 2), (65_536, 1), (8_192, 4), (4_096, 2)]
    assert (side.task_count, side.bytes, side.block_bytes) == (18, 373_248, 131_072)


def test_time_is_shared_out_by_busy_time_and_by_megabyte() -> None:
    side = side_of(Story().tasks(8, ("propagation", 3 * MS), ("transfer", MS), bytes=500_000, data_bytes=500_000))
    assert (side.share("propagation"), side.ns_per_megabyte("propagation")) == (0.75, 6 * MS)
    assert side.pace_bytes_per_s == 500_000 / 0.004


def test_losses_and_windows_are_those_of_the_data_s_sender() -> None:
    story = Story().tasks(8, ("transfer", MS))
    story.connection |= {"packets_to_initiator": 200, "retransmitted_packets_to_initiator": 5, "packets_to_target": 7}
    story.add("senders", **SENDER, recovery_count=3)
    story.add("senders", **SENDER | {"to_target": True, "rwnd_max_bytes": 1 << 30}, recovery_count=9)
    side = side_of(story)
    assert (side.packet_count, side.retransmitted_packet_count, side.retransmitted_share) == (200, 5, 0.025)
    assert (side.loss_count, side.window_bytes) == (3, 65_536)


def test_keys_differ_by_what_is_in_force_except_for_names() -> None:
    def keyed(**values: str) -> sides.Side:
        story = Story().tasks(8, ("transfer", MS))
        for key, value in values.items():
            both = {"initiator_value": value, "target_value": value, "effective_initiator": value}
            story.add("parameters", key=key, source="negotiated", effective_target=value, **both)
        return side_of(story)

    a = keyed(MaxBurstLength="1", InitialR2T="Yes", TargetName="x", MaxConnections="1")
    b = keyed(ImmediateData="No", InitialR2T="No", TargetName="y", MaxConnections="1")
    assert sides.differing_keys(a, b) == ["MaxBurstLength", "InitialR2T", "ImmediateData"]


def test_without_a_model_the_throughput_is_that_of_the_busy_time() -> None:
    """Five commands are too few for the model."""
    side = side_of(Story().tasks(5, ("propagation", 3 * MS), ("transfer", MS), bytes=500_000, data_bytes=500_000))
    assert side.measured is None
    assert side.pace_bytes_per_s == 5 * 500_000 / 0.020
    assert side.as_dict()["model_pace_bytes_per_s"] is None
    assert (side.share("transfer"), side.jobs_ns, side.queue_depth) == (0.25, 20 * MS, 1)


def test_the_throughput_of_the_model_stands_beside_the_measured_one() -> None:
    side = side_of(Story().tasks(8, ("propagation", 16 * MS), ("target_service", 4 * MS)))
    # 128 KiB in an RTT of 16 ms and 4 ms of service
    assert side.as_dict()["model_pace_bytes_per_s"] == pytest.approx(131_072 / 0.020)
    assert side.as_dict()["pace_bytes_per_s"] == pytest.approx(131_072 / 0.020)
    assert (side.as_dict()["round_trip_ns"], side.as_dict()["one_way_delay_ns"]) == (16 * MS, 8 * MS)
    unknown = side_of(Story(rtt_to_target_ns=None).tasks(8, ("propagation", 16 * MS))).as_dict()
    assert (unknown["round_trip_ns"], unknown["one_way_delay_ns"]) == (None, None)


def test_without_packets_or_windows_there_is_nothing_to_share() -> None:
    story = Story().tasks(8, ("transfer", MS))
    story.connection["packets_to_initiator"] = 0
    assert (side_of(story).retransmitted_share, side_of(story).window_bytes) == (0.0, None)
    unknown = side_of(story.add("senders", to_target=False, rwnd_max_bytes=None))
    assert (unknown.window_bytes, unknown.loss_count) == (None, 0)
    assert side_of(story.add("senders", to_target=False, rwnd_max_bytes=1)).window_bytes == 1


@pytest.mark.parametrize(("reads", "writes", "packets"), [(3, 2, 200), (2, 2, 7), (2, 3, 7)])
def test_of_few_commands_the_direction_is_that_of_most_bytes(reads: int, writes: int, packets: int) -> None:
    story = Story().tasks(reads, ("transfer", MS)).tasks(writes, ("transfer", MS), operation="write")
    story.connection |= {"packets_to_initiator": 200, "packets_to_target": 7}
    assert side_of(story).packet_count == packets


def test_keys_are_those_of_the_first_connection() -> None:
    story = Story().tasks(8, ("transfer", MS))
    story.rows["connections"].append(story.connection | {"connection": 2})
    for connection, value in ((3, "Yes"), (2, "No")):
        row = {"effective_initiator": value, "effective_target": value, "source": "negotiated"}
        story.add("parameters", connection=connection, key="InitialR2T", **row)
    assert side_of(story).keys == {"InitialR2T": sides.Key(None, None, "No")}
    assert side_of(story).connection_count == 1
