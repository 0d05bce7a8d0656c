"""I/Os on a shared line against arithmetic by hand: a byte takes 1 ns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from iscsitrace.model.transfer import Block, Pipeline, Service, Way

TEN, NEAR = Block(10), Way(5)


def line(block: Block, ways: Sequence[Way], tasks: Sequence[Sequence[int]], service: Service | None = None) -> Pipeline:
    return Pipeline(block, ways, tasks, 1.0, service)


def test_a_window_continues_with_the_ack_of_its_first_bytes() -> None:
    # 0 to 10, 20 to 30, 40 to 50
    assert line(Block(30), [Way(5, 20, 10)], [[0]]).run(1) == [55]
    # the ACK comes while the window is sent: the line is never free
    assert line(Block(30), [Way(5, 8, 10)], [[0]]).run(1) == [35]


def test_slow_start_sends_twice_as_much_until_the_window_is_reached() -> None:
    # 10 at 0, 20 at 100, 40 at 200; the window is 40, so one byte more waits until 300
    way = Way(5, 100, 40, 10)
    assert line(Block(70), [way], [[0]]).run(1) == [245]
    assert line(Block(71), [way], [[0]]).run(1) == [306]


def test_which_ack_a_byte_needs() -> None:
    way = Way(5, 100, window_bytes=40, start_bytes=10)
    # slow start ends where the window has grown to 40: at byte 2 * 40 - 10
    assert [way.needed(position) for position in (0, 10, 69, 70)] == [(-5, 70), (0, 60), (29.5, 1), (30, float("inf"))]
    assert Way(5, 100, window_bytes=40).needed(0) == (-40, float("inf"))


def test_connections_share_the_line_in_the_order_of_their_commands() -> None:
    assert line(TEN, [NEAR, Way(50)], [[0], [1]]).run(2) == [15, 70]
    assert line(TEN, [NEAR, Way(50)], [[1], [0]]).run(2) == [25, 60]


def test_a_command_over_two_ways_is_done_when_both_have_it() -> None:
    assert line(TEN, [NEAR, Way(50)], [[0, 1]]).run(1) == [70]
    # and begins again then: 70 to 80, 80 to 90 and 50 more
    assert line(TEN, [NEAR, Way(50)], [[0, 1]]).run(2) == [70, 140]


@pytest.mark.parametrize(("outstanding", "done"), [(1, 60), (2, 50), (3, 50)])
def test_bursts_for_r2ts(outstanding: int, done: float) -> None:
    """One at a time: 0, 15, 30 and 45 to 55. Two: 15 to 25, 25 to 35, and the third, asked for at 30, to 45."""
    assert line(Block(10, (10, 10, 10), outstanding), [NEAR], [[0]]).run(1) == [done]


def test_a_command_begins_when_the_one_before_is_done_and_served() -> None:
    assert line(TEN, [NEAR], [[0]]).run(3) == [15, 30, 45]
    assert line(TEN, [NEAR], [[0]], Service(3)).run(3) == [18, 36, 54]
    # two in flight: the line carries the other while one waits
    assert line(TEN, [NEAR], [[0], [0]]).run(4) == [15, 25, 35, 45]


@pytest.mark.parametrize(
    ("count", "kinds", "done"),
    [
        (1, [0, 0], 15),
        (2, [0, 0], 25),
        # the third begins when the first is done, at 15
        (3, [0, 0], 35),
        (1, [0, 1], 25),
        (2, [0, 1], 45),
    ],
)
def test_a_call_ends_with_the_last_of_so_many_of_each_kind(count: int, kinds: list[int], done: float) -> None:
    assert line(TEN, [NEAR], [[0], [0]]).call(count, kinds) == done


def test_service_times_scatter_evenly_around_their_mean_and_are_the_same_in_every_run() -> None:
    drawn, again = Service(100, 10).drawn(), Service(100, 10).drawn()
    times = [next(drawn) for _ in range(1_000)]
    assert times == [next(again) for _ in range(1_000)]
    assert 90 <= min(times) < 90.5
    assert 109.5 < max(times) <= 110
    assert [next(Service(100).drawn()) for _ in range(3)] == [100, 100, 100]


def test_what_follows_a_pause_without_a_gap_is_acknowledged_after_the_pause() -> None:
    """Of 5 bytes each in a window of 10: 0 to 10, 20 to 30 with the first one's next, then the ACK of byte 10 at 40."""
    assert line(Block(5), [Way(5, 20, 10)], [[0], [0], [0]]).run(5) == [10, 15, 30, 35, 50]


def test_without_other_values_one_r2t_is_outstanding_and_nothing_limits() -> None:
    assert line(Block(10, (10, 10, 10)), [NEAR], [[0]]).run(1) == [60]
    assert (NEAR.acknowledged_ns, NEAR.window_bytes, NEAR.start_bytes) == (0, float("inf"), float("inf"))
    assert next(Service().drawn()) == 0


def test_a_window_that_opens_while_the_line_is_busy_is_used_when_it_is_free() -> None:
    """A window of 10 whose ACK takes 12: 0 to 10, the other's 10 to 25, and 25 to 35."""
    ways = [Way(5, 12, 10), Way(50)]
    assert line(Block(20), [ways[0]], [[0]]).run(1) == [27]
    assert line(Block(15), ways, [[0], [1]]).run(2) == [35, 75]


def test_bytes_of_nothing_need_no_line() -> None:
    """A write whose data is all solicited: its R2T comes after 5, and the data takes from 5 to 15."""
    assert line(Block(0, (10,)), [NEAR], [[0]]).run(1) == [20]
    assert line(Block(0, (10,)), [Way(5, 20, 4)], [[0]]).run(1) == [5 + 4 + 16 + 4 + 16 + 2 + 5]
