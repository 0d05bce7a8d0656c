"""The cycle of one command, and what of it is a stall: against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from iscsitrace.model.cycle import _is_simple, _ways, bytes_per_s, cycle_of, legs, rounds_paid
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Setting, Solicitation
from iscsitrace.model.transfer import Pipeline, commands_per_ns, is_uneven, rate_of_line, stream_bytes

MS = 1_000_000
HELD = Setting("read", 65_536, 4 * MS, is_status_held=True, ack_delay_ns=40 * MS)


def test_a_held_status_waits_for_a_delayed_ack_or_for_other_data() -> None:
    """The ACK comes 8 ms and 40 ms after the data. Alone that is the wait."""
    alone = cycle_of(HELD)
    assert ([leg.delays for leg in alone.legs], alone.ways_ns, alone.stall_ns) == ([1, 1, 1, 1], 16 * MS, 40 * MS)
    # eight outstanding, all within 8 ms and the wait: an eighth of both is the wait
    riding = cycle_of(replace(HELD, queue_depth=8))
    wait_ms = 8 / 7
    assert [leg.delays for leg in riding.legs] == pytest.approx([1, wait_ms / 4, 1])
    assert (riding.ways_ns, riding.stall_ns) == pytest.approx(((8 + wait_ms) * MS, 0), abs=1)
    # two, and the target takes 60 ms: other data comes after 68 ms, the ACK before
    slow = cycle_of(replace(HELD, queue_depth=2, service_ns=60 * MS))
    assert [leg.delays for leg in slow.legs] == pytest.approx([1, 2, 1])
    assert (slow.ways_ns, slow.stall_ns) == pytest.approx((16 * MS, 40 * MS))


def test_a_held_status_without_a_delay() -> None:
    assert predict(replace(HELD, delay_ns=0.0, queue_depth=2, service_ns=MS)).k == 2


def test_losses_cost_a_round_trip_where_there_is_one_in_the_last_window() -> None:
    setting = Setting("read", 10 * 1_448, 4 * MS, loss=1e-3, congestion_control="reno")
    found = cycle_of(setting)
    # and leaves five, which regrow in five round trips: each of the next five reads needs one more
    repairs_ns = 8 * MS * (1 - (1 - 1e-3) ** 10) * (1 + 5)
    assert (found.stall_ns, found.loss_stall_ns) == pytest.approx((repairs_ns, repairs_ns))


def test_after_a_loss_reads_wait_until_the_window_has_grown_to_them_again() -> None:
    """20 segments are 10 after a loss, and 20 again ten reads later. CUBIC keeps 7/10, and grows more slowly."""
    setting = Setting("read", 20 * 1_448, 4 * MS, loss=1e-3, congestion_control="reno", window_bytes=1 << 20)
    met_ns = 8 * MS * (1 - 0.999**20)
    assert cycle_of(setting).loss_stall_ns == pytest.approx(met_ns * (1 + 10))
    # a segment in 39 behind its 9/17 of a segment in a round trip
    cubic = replace(setting, congestion_control="cubic")
    assert cycle_of(cubic).loss_stall_ns == pytest.approx(met_ns * (1 + 20 * 0.3 / (9 / 17 * (38 / 39) ** 2)), rel=0.01)
    # far away it grows faster
    far = replace(cubic, delay_ns=400 * MS)
    assert cycle_of(far).loss_stall_ns < 100 * met_ns * (1 + 5)
    # in a queue the others fill the window
    assert cycle_of(replace(setting, queue_depth=2)).loss_stall_ns == pytest.approx(met_ns)


def test_of_a_stall_losses_cause_what_the_receive_window_does_not() -> None:
    """40 segments by 10 wait three times. A loss in a thousand RTTs takes 20 segments: four waits."""
    setting = Setting("read", 40 * 1_448, 4 * MS, window_bytes=10 * 1_448)
    assert (cycle_of(setting).stall_ns, cycle_of(setting).loss_stall_ns) == pytest.approx((3 * 8 * MS, 0))
    found = cycle_of(replace(setting, loss=1e-4, congestion_control="reno"))
    repairs_ns = 8 * MS * (1 - (1 - 1e-4) ** 9.98)
    assert found.stall_ns == pytest.approx(4 * 8 * MS + repairs_ns)
    assert found.loss_stall_ns == pytest.approx(8 * MS + repairs_ns)


def test_a_write_repairs_losses_of_each_burst() -> None:
    keys = Solicitation(is_immediate_data=False, max_burst_bytes=10 * 1_448)
    setting = Setting("write", 15 * 1_448, 4 * MS, loss=1e-3, congestion_control="reno", solicitation=keys)
    repairs_ns = sum(8 * MS * (1 - (1 - 1e-3) ** segments) * (1 + segments / 2) for segments in (10, 5))
    assert cycle_of(setting).loss_stall_ns == pytest.approx(repairs_ns)


def test_waits_for_the_other_copy_are_transfer() -> None:
    """400 kB take 10 ms at 40 MB/s, twice; the farther target's come second, and need 20 ms more."""
    keys = Solicitation(is_initial_r2t=False, first_burst_bytes=1 << 20)
    setting = Setting("write", 400_000, 1 * MS, 40e6, target_delays_ns=(1 * MS, 10 * MS), solicitation=keys)
    found = cycle_of(setting)
    assert (found.ways_ns, found.transfer_ns, found.stall_ns) == pytest.approx((20 * MS, 20 * MS, 0))


def test_a_call_of_less_than_a_block_is_one_block() -> None:
    setting = Setting("write", 65_536, 4 * MS, 65_536_000, call_bytes=10_000, queue_depth=2)
    setting = replace(setting, solicitation=Solicitation(is_initial_r2t=False))
    # a millisecond on the line, and the status 8 ms later
    assert bytes_per_s(setting, cycle_of(setting)) == pytest.approx(65_536 / 0.009, rel=1e-12)


def test_throughput_is_what_all_places_of_the_queue_move_in_a_period() -> None:
    """9 ms for 64 KiB; a held status is not followed command by command, whether its service times scatter or not."""
    read = Setting("read", 65_536, 4 * MS, 65_536_000)
    for setting in (read, replace(read, queue_depth=2), replace(read, connections=3)):
        places = setting.queue_depth * setting.connections
        assert bytes_per_s(setting, cycle_of(setting)) == pytest.approx(places * 65_536 / 0.009, rel=1e-12)
    held = replace(HELD, queue_depth=8, service_spread_ns=2.0 * MS, service_ns=2.0 * MS)
    cycle = cycle_of(held)
    assert bytes_per_s(held, cycle) == pytest.approx(8 * 65_536 / cycle.period_ns(held) * 1e9, rel=1e-12)
    found = predict(replace(read, queue_depth=2, connections=2))
    assert found.period_ns * found.throughput_bytes_per_s == pytest.approx(4 * 65_536 * 1e9, rel=1e-12)


def test_a_cycle_without_any_time_is_infinitely_fast() -> None:
    free = Setting("read", 65_536, 0.0)
    assert bytes_per_s(free, cycle_of(free)) == inf
    write = replace(free, operation="write", queue_depth=2)
    assert bytes_per_s(write, cycle_of(write)) == inf
    assert bytes_per_s(replace(write, call_bytes=1 << 20), cycle_of(write)) == inf


def test_a_factor_lengthens_the_delays_and_no_other_part() -> None:
    """8 ms of delays by 1.5; 1 ms on the line, and three waits of 8 ms for windows of ten segments."""
    setting = Setting("read", 40 * 1_448, 4 * MS, window_bytes=10 * 1_448, service_ns=2.0 * MS)
    found = cycle_of(setting, 1.5)
    assert [leg.delays for leg in found.legs] == [1.5, 1.5]
    assert (found.ways_ns, found.transfer_ns, found.stall_ns) == pytest.approx((12 * MS, 0, 24 * MS))
    assert found.period_ns(setting) == pytest.approx((12 + 24 + 2) * MS)
    # of a mirror those of the farthest target, which has both copies on the line
    keys = Solicitation(is_initial_r2t=False, first_burst_bytes=1 << 20)
    mirror = Setting("write", 400_000, 0.0, 40e6, target_delays_ns=(1.0 * MS, 10.0 * MS), solicitation=keys)
    found = cycle_of(mirror, 2.0)
    assert (found.ways_ns, found.transfer_ns, found.stall_ns) == pytest.approx((40 * MS, 20 * MS, 0))


def test_a_mirror_over_several_connections_has_the_cycle_of_one() -> None:
    keys = Solicitation(is_initial_r2t=False, first_burst_bytes=1 << 20)
    mirror = Setting("write", 400_000, 0.0, 40e6, target_delays_ns=(1.0 * MS, 10.0 * MS), solicitation=keys)
    assert cycle_of(replace(mirror, connections=3)) == cycle_of(mirror)
    # a near target after the far one costs no time: its copy is there before
    found = cycle_of(replace(mirror, target_delays_ns=(10.0 * MS, 1.0 * MS)))
    assert found.transfer_ns == pytest.approx(10 * MS)


def test_reads_whose_windows_hold_everything_need_not_be_followed() -> None:
    """Two blocks of four segments fit into eight; of seven, or with slow start, commands are followed."""
    setting = Setting("read", 4 * 1_448, 4 * MS, queue_depth=2, window_bytes=8 * 1_448)
    assert _is_simple(setting)
    assert _is_simple(replace(setting, window_bytes=None))
    assert not _is_simple(replace(setting, window_bytes=8 * 1_448 - 1))
    assert not _is_simple(replace(setting, queue_depth=3))
    assert not _is_simple(replace(setting, start_window_bytes=1 << 20))
    assert not _is_simple(replace(setting, service_spread_ns=1.0))
    assert not _is_simple(replace(setting, operation="write"))


def test_the_ways_of_a_mirror_are_those_to_each_target() -> None:
    setting = Setting("write", 4_096, 9.0, target_delays_ns=(1.0, 2.0), connections=2)
    assert [way.round_trip_ns for way in _ways(setting)] == [2, 2, 4, 4]
    assert [way.round_trip_ns for way in _ways(replace(setting, target_delays_ns=()), 0.5)] == [9, 9]


def test_defaults_of_a_setting() -> None:
    """One command over one connection, and nothing but the path."""
    setting = Setting("read", 4_096, 1.0)
    assert (setting.queue_depth, setting.connections, setting.segment_bytes) == (1, 1, 1_448)
    assert (setting.service_ns, setting.service_spread_ns, setting.ack_delay_ns, setting.loss) == (0, 0, 0, 0)
    assert (setting.is_status_held, setting.target_delays_ns, setting.congestion_control) == (False, (), "cubic")
    found = predict(setting)
    assert (found.k, found.is_in_range, found.bound, found.stall_ns, found.transfer_ns) == (2, True, "cycle", 0, 0)
    assert found.as_dict() == {
        "period_ns": 2, "throughput_bytes_per_s": pytest.approx(4_096 / 2e-9), "bound": "cycle", "k": 2,
        "transfer_ns": 0, "stall_ns": 0, "idle_fraction": 1, "is_in_range": True,
    }  # fmt: skip


def test_legs_of_reads_and_writes() -> None:
    def delays(setting: Setting) -> dict[str, float]:
        return {leg.name: leg.delays for leg in legs(setting)}

    assert delays(HELD) == {"command": 1, "data": 1, "ack": 1, "status": 1}
    assert delays(replace(HELD, is_status_held=False)) == {"command": 1, "data": 1}
    keys = Solicitation(is_immediate_data=False, max_burst_bytes=1_000)
    write = Setting("write", 3_000, 4 * MS, solicitation=keys)
    assert delays(write) == {"command": 1, "r2t": 3, "data": 3, "status": 1}
    two = replace(write, solicitation=replace(keys, max_outstanding_r2t=2))
    assert delays(two) == {"command": 1, "r2t": pytest.approx(2), "data": pytest.approx(2), "status": 1}
    unsolicited = replace(write, solicitation=Solicitation(is_initial_r2t=False))
    assert delays(unsolicited) == {"command": 1, "status": 1}
    assert [" and its unsolicited data" in legs(each)[0].meaning for each in (write, unsolicited)] == [False, True]


def test_rounds_that_several_r2ts_share() -> None:
    keys = Solicitation(is_immediate_data=False, max_burst_bytes=1_000, max_outstanding_r2t=2)
    # five bursts by two, with and without a delay
    assert [rounds_paid(Setting("write", 5_000, delay_ns, solicitation=keys)) for delay_ns in (0.0, MS)] == [3, 3]


def test_bytes_of_a_line_and_of_a_stream() -> None:
    # a segment of 1448 bytes is a frame of 1514; each data PDU has 48 bytes more
    assert rate_of_line(1e9, 1_448) == pytest.approx(125e6 * 1_448 / 1_514)
    assert [stream_bytes(size, 8_192) for size in (8_192, 8_193)] == [8_240, 8_193 + 96]
    assert stream_bytes(8_193, None) == 8_193


@pytest.mark.parametrize(
    ("connections", "queue_depth", "dealt"), [(3, 8, (3, 3)), (2, 8, (2, 4)), (8, 3, (3, 1)), (1, 1, (1, 1))]
)
def test_a_queue_is_dealt_over_the_connections(connections: int, queue_depth: int, dealt: tuple[int, int]) -> None:
    found = replace(HELD, connections=connections, queue_depth=queue_depth).dealt()
    assert (found.connections, found.queue_depth) == dealt


def test_commands_that_meet_on_the_line_by_chance() -> None:
    """Of 2 ns one on the line: the second finds half a command in the queue, less half of its half."""
    assert commands_per_ns(1, 2.0, 1.0) == 1 / 2
    assert commands_per_ns(2, 2.0, 1.0) == pytest.approx(2 / (1 + 1.25))
    assert commands_per_ns(3, 2.0, 0.0) == 3 / 2
    assert commands_per_ns(500, 2.0, 1.0) <= 1
    assert 2.4 < commands_per_ns(500, 0.5, 0.4) <= 2.5


def test_service_times_are_uneven_from_a_quarter_of_the_line_time() -> None:
    assert [is_uneven(deviation_ns, 100) for deviation_ns in (24.9, 25)] == [False, True]
    assert [is_uneven(deviation_ns, 0) for deviation_ns in (0, 1)] == [False, True]


@pytest.mark.parametrize(
    ("values", "rounds"),
    [
        # four commands of 100 bursts, the first of which is empty: 4000 / 400
        ({}, 10),
        # at least 6 where there are two copies, at most 24
        ({"target_delays_ns": (4.0 * MS, 4.0 * MS)}, 6),
        ({"block_bytes": 10_000}, 24),
        # uneven service times take three times as long to get out of step
        ({"service_spread_ns": 1.0}, 30),
    ],
)
def test_the_first_third_of_the_rounds_does_not_count(
    values: dict[str, Any], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command n is done at n squared."""
    counts = []

    def run(pipeline: Pipeline, count: int) -> list[float]:
        counts.append(count)
        return [float(number**2) for number in range(count)]

    keys = Solicitation(is_immediate_data=False, max_burst_bytes=1_000)
    setting = Setting("write", 99_000, 4 * MS, 1e9, queue_depth=2, connections=2, solicitation=keys)
    setting = replace(setting, **values)
    cycle = cycle_of(setting)
    monkeypatch.setattr(Pipeline, "run", run)
    first, last = rounds // 3 * 4 - 1, rounds * 4 - 1
    expected = (last - first) * setting.block_bytes / (last**2 - first**2) * 1e9
    assert bytes_per_s(setting, cycle) == pytest.approx(expected, rel=1e-12)
    assert counts == [4 * rounds]


def test_each_target_of_a_mirror_gets_all_commands_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four and a bit; two targets over two connections each, with three commands in flight on each of these."""
    asked: list[tuple[int, list[int], list[list[int]]]] = []

    def call(pipeline: Pipeline, count: int, kinds: list[int]) -> float:
        asked.append((count, kinds, [list(task) for task in pipeline._tasks]))
        return 7.0 * MS

    monkeypatch.setattr(Pipeline, "call", call)
    setting = Setting("write", 1_000, 0.0, call_bytes=4_100, queue_depth=3, connections=2)
    setting = replace(setting, target_delays_ns=(1.0 * MS, 2.0 * MS))
    assert bytes_per_s(setting, cycle_of(setting)) == pytest.approx(4 * 1_000 / 0.007, rel=1e-12)
    ways = [number for number in range(4) for _ in range(3)]
    assert asked == [(4, [number // 2 for number in ways], [[number] for number in ways])]


def test_each_command_of_a_mirror_goes_to_all_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the same connection of each of them."""
    asked: list[list[list[int]]] = []

    def run(pipeline: Pipeline, count: int) -> list[float]:
        asked.append([list(task) for task in pipeline._tasks])
        return [float(number) for number in range(count)]

    setting = Setting("write", 1_000, 0.0, queue_depth=2, connections=3, target_delays_ns=(1.0 * MS, 2.0 * MS))
    cycle = cycle_of(setting)
    monkeypatch.setattr(Pipeline, "run", run)
    bytes_per_s(setting, cycle)
    assert asked == [[[0, 3], [1, 4], [2, 5]] * 2]
