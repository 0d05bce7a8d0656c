"""The figures of one side of `diff`; ties and thresholds of the choice of two sessions to compare."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.compare import sides
from iscsitrace.compare.sides import Side, match, why_not
from tests.compare.test_diff import numbers, side
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
    assert (side.packet_count, side.retransmitted_packet_count) == (200, 5)
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
    assert (side_of(story).retransmitted_packet_count, side_of(story).window_bytes) == (0, None)
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


def test_a_session_with_a_tenth_of_the_bytes_may_be_picked() -> None:
    reader = numbers(side(0, "read"))
    assert match(numbers(side(0, "write", moved=1_000), side(1, "read", moved=100)), reader)[0].session == 1
    assert match(numbers(side(0, "write", moved=1_000), side(1, "read", moved=99)), reader)[0].session == 0


def test_among_equals_the_first_is_picked() -> None:
    both = numbers(side(4), side(2), side(3))
    assert [each.session for each in match(both, both)] == [2, 2]


def test_unknown_targets_are_not_the_same() -> None:
    a = numbers(side(0, target=None, moved=900), side(1, target="disk", moved=800))
    b = numbers(side(5, target=None, moved=900), side(6, target="disk", moved=800))
    assert [each.session for each in match(a, b)] == [1, 6]


def test_an_operation_counts_more_than_a_target_and_a_target_more_than_bytes() -> None:
    a = numbers(side(0, "read", "disk", 500), side(1, "write", "other", 900))
    assert match(a, numbers(side(7, "write", "disk")))[0].session == 1
    assert match(a | numbers(side(2, "read", "other", 900)), numbers(side(7, "read")))[0].session == 0


SESSIONS = st.lists(
    st.builds(
        side,
        st.integers(0, 99),
        st.sampled_from(["read", "write", "block"]),
        st.sampled_from(["disk", "other", "", None]),
        st.sampled_from([99, 100, 900, 1_000]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each.session,
)


@given(SESSIONS, SESSIONS)
def test_no_pair_of_all_is_more_alike(a: list[Side], b: list[Side]) -> None:
    def likeness(one: Side, other: Side) -> tuple[bool, bool, int, int, int]:
        is_same_target = one.target_name is not None and one.target_name == other.target_name
        return (
            *(one.operation == other.operation, is_same_target),
            *(one.bytes * other.bytes, -one.session, -other.session),
        )

    busy = [[one for one in sides if one.bytes * 10 >= max(each.bytes for each in sides)] for sides in (a, b)]
    best = max(itertools.product(*busy), key=lambda pair: likeness(*pair))
    assert match(numbers(*a), numbers(*b)) == best


def test_sessions_are_not_compared_each_with_each() -> None:
    class Counted(int):
        products = 0

        def __mul__(self, other: int) -> int:
            Counted.products += 1
            return int(self) * other

    sessions = numbers(*(side(number, target=f"target {number}", moved=Counted(1_000)) for number in range(100)))
    match(sessions, sessions)
    assert Counted.products <= len(sessions)


@pytest.mark.parametrize(("unknown", "which"), [(0, "first"), (1, "second")])
def test_which_capture_lacks_the_rtt_or_the_commands(unknown: int, which: str) -> None:
    pair = [side(3), side(4)]
    pair[unknown] = replace(pair[unknown], path_ns=None)
    # the first capture is asked for both before the second
    reason = why_not(*pair) or ""
    if unknown == 0:
        assert reason == f"the {which} capture does not show the RTT of session 3"
    else:
        assert reason == "session 3 of the first capture has only 7 complete reads: too few to be sure"
    assert why_not(side(0, "block"), side(1)) == (
        "session 0 of the first capture mixes reads and writes, and the model covers one operation"
    )


def test_the_requested_sessions_are_compared_however_little_they_moved() -> None:
    a = numbers(side(0, moved=1_000), side(1, moved=1))
    assert [each.session for each in match(a, a, 1, None)] == [1, 0]
    assert [each.session for each in match(a, a, None, 1)] == [0, 1]


def test_sessions_that_both_read_and_have_commands_can_be_compared() -> None:
    measured = replace(side(3), task_count=8, measured=object())  # type: ignore[arg-type]
    assert why_not(measured, replace(measured, session=4)) is None
    reason = why_not(measured, replace(side(4), path_ns=None))
    assert reason == "the second capture does not show the RTT of session 4"
    few = "session 4 of the second capture has only 7 complete reads: too few to be sure"
    assert why_not(measured, side(4)) == few
    single = replace(side(4, "write"), task_count=1)
    assert "has only 1 complete write:" in (why_not(replace(measured, operation="write"), single) or "")
    # eight show a pattern
    enough = replace(side(4), task_count=8, measured=measured.measured)
    assert why_not(measured, enough) is None
