"""The figures of an interval from tables made by hand: loads by group, and what senders counted since the last one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.measure.waits import Waits
from iscsitrace.tables.table import Table
from iscsitrace.watch.figures import NO_LOAD, load_of, loads_of, transports_of
from iscsitrace.watch.totals import Totals
from tests.support.calls import calls_of, rows_of
from tests.support.tables_by_hand import MS, table, with_waits

NOTHING = {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}


def command(connection: int, latency_ms: int | None, **columns: Any) -> dict[str, Any]:
    status_ns = None if latency_ms is None else latency_ms * MS
    known = {"connection": connection, "command_first_ns": 0, "status_ns": status_ns, "queue_depth": 1, "bytes": 4_096}
    return known | columns


def test_loads_of_groups() -> None:
    """Two commands of connection 5, three of connection 9, of which one has no status and one no size."""
    cycles, waited = with_waits(
        [
            command(9, 8, queue_depth=2, operation="read", is_read=True, data_bytes=4_096, is_complete=True),
            command(5, 3, queue_depth=6, bytes=8_192),
            command(9, None, bytes=512),
            command(5, 1, queue_depth=3, bytes=8_192),
            command(9, 2, bytes=None, operation="write", is_write=True, data_bytes=512, is_complete=True),
        ]
    )
    found = loads_of(cycles, waited, cycles.raw("connection"), 2_000_000_000)
    assert list(found) == [5, 9]
    five, nine = found[5], found[9]
    assert (five.task_count, five.iops, five.queue_depth_mean, five.queue_depth_max) == (2, 1.0, 4.5, 6)
    assert five.latency_ns == {"n": 2, "p50": 1 * MS, "p95": None, "p99": None, "max": 3 * MS}
    assert five.block_sizes == [{"bytes": 8_192, "task_count": 2}]
    assert nine.latency_ns == {"n": 2, "p50": 2 * MS, "p95": None, "p99": None, "max": 8 * MS}
    # of as many the smaller size first
    assert nine.block_sizes == [{"bytes": 512, "task_count": 1}, {"bytes": 4_096, "task_count": 1}]
    assert (nine.read_bytes_per_s, nine.write_bytes_per_s) == (2_048, 256)


def test_commands_that_hang_or_were_lost_are_the_slowest() -> None:
    # the second was in flight for 50 ms when its connection was closed
    lost = {"connection": 9, "time_last_ns": 50 * MS, "rst_to_target_ns": 50 * MS}
    cycles, waited = with_waits([command(9, 8), command(9, None), command(5, 3)], lost)
    hung = {5: np.array([4 * MS]), 7: np.array([9 * MS]), 9: np.array([2 * MS])}
    found = loads_of(cycles, waited, cycles.raw("connection"), 1, hung)
    assert {number: load.latency_ns for number, load in found.items()} == {
        5: {"n": 2, "p50": 3 * MS, "p95": None, "p99": None, "max": 4 * MS, "open_count": 1},
        # nothing ended there
        7: {"n": 1, "p50": 9 * MS, "p95": None, "p99": None, "max": 9 * MS, "open_count": 1},
        # one that has waited for less than another took says nothing yet
        9: {"n": 2, "p50": 8 * MS, "p95": None, "p99": None, "max": 50 * MS, "open_count": 1},
    }
    assert (found[7].task_count, found[7].queue_depth_max) == (0, None)
    assert load_of(*with_waits([]), 1, np.array([6 * MS])).latency_ns["max"] == 6 * MS


def test_the_rows_of_a_group_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand sessions of which each lost a command, none looks at the commands of the others."""
    lost = [{"connection": number, "time_last_ns": MS, "rst_to_target_ns": MS} for number in range(1000)]
    cycles, waited = with_waits([command(number, None, session=number) for number in range(1000)], *lost)
    of_waits, of_cycles = (calls_of(monkeypatch, owner, "select") for owner in (Waits, Table))
    loads_of(cycles, waited, cycles.raw("connection"), MS)
    Totals().add(cycles, waited, 0)
    assert 2 * len(cycles) <= rows_of([*of_waits, *of_cycles]) < 10 * len(cycles)


def test_a_percentile_takes_as_many_commands_as_one_has_above_it() -> None:
    cycles = [command(count, latency + 1) for count in (19, 20, 99, 100) for latency in range(count)]
    found = loads_of(*with_waits(cycles), np.array([row["connection"] for row in cycles]), 1)
    assert [(number, load.latency_ns["n"]) for number, load in found.items()] == [(n, n) for n in (19, 20, 99, 100)]
    tails = [[load.latency_ns[name] for name in ("p95", "p99", "max")] for load in found.values()]
    # by nearest rank the 19th of 20, the 95th of 99 and 100, the 99th of 100
    expected: list[list[int | None]] = [[None, None, 19], [19, None, 20], [95, None, 99], [95, 99, 100]]
    assert tails == [[ms and ms * MS for ms in row] for row in expected]


def test_an_interval_without_commands_or_length() -> None:
    nothing = load_of(*with_waits([]), 7)
    assert (nothing.task_count, nothing.length_ns, nothing.latency_ns, nothing.block_sizes) == (0, 7, NOTHING, [])
    assert (NO_LOAD.iops, NO_LOAD.queue_depth_mean, NO_LOAD.queue_depth_max) == (0, None, None)


def test_three_sizes_are_shown() -> None:
    sizes = [512] * 2 + [1_024] * 3 + [2_048] + [4_096] * 4
    commands = with_waits([command(0, 1, bytes=size) for size in sizes])
    found = load_of(*commands, 1).block_sizes
    assert [(each["bytes"], each["task_count"]) for each in found] == [(4_096, 4), (1_024, 3), (512, 2)]
    assert np.isclose(load_of(*commands, 1_000_000_000).iops, 10)


def side(owin: int, rtt_ms: int | None) -> dict[str, Any]:
    rtt_ns = None if rtt_ms is None else rtt_ms * MS
    return {"owin_peak_bytes": owin, "owin_bytes": owin - 1, "rwnd_bytes": owin + 1, "rtt_smoothed_ns": rtt_ns}


def sender(connection: int, to_target: bool, rtt_ms: int | None, *counts: int) -> dict[str, Any]:
    names = ("fast_retransmit_count", "timeout_count", "tail_probe_count", "unknown_retransmit_count", "spurious_count")
    rtt_ns = None if rtt_ms is None else rtt_ms * MS
    own = {"connection": connection, "to_target": to_target, "rtt_min_ns": rtt_ns}
    return own | dict(zip(names, counts, strict=True))


def test_senders_count_since_the_last_interval() -> None:
    now: list[dict[str, Any]] = [
        {"connection": 6},
        {"connection": 4, "to_target": side(10, 3), "to_initiator": side(20, 5)},
    ]
    before: dict[tuple[int, bool], dict[str, int]] = {}
    first = table("senders", sender(4, True, 2, 1, 2, 3, 4, 5), sender(4, False, 4, 10, 0, 0, 0, 1))
    found = transports_of(now, first, before)
    # a connection without dynamics has no transport
    assert list(found) == [4]
    own = found[4]
    assert own.retransmissions == {
        "fast_retransmit": 11, "timeout": 2, "tail_probe": 3, "unknown_retransmit": 4, "spurious": 6,
    }  # fmt: skip
    # without the spurious ones, which are among the others
    assert own.retransmitted_total == 20
    assert (own.rtt_smoothed_ns, own.rtt_min_ns) == (8 * MS, 6 * MS)
    assert own.owin_peak_bytes == {"to_target": 10, "to_initiator": 20}
    assert (own.owin_bytes, own.rwnd_bytes) == (
        {"to_target": 9, "to_initiator": 19}, {"to_target": 11, "to_initiator": 21},
    )  # fmt: skip
    # one side counts on, of the other there is nothing, which is no RTT either; a count that falls is none
    second = table("senders", sender(4, True, 2, 1, 5, 3, 0, 5))
    now[1]["to_target"] = side(10, None)
    own = transports_of(now, second, before)[4]
    assert list(own.retransmissions.values()) == [0, 3, 0, 0, 0]
    assert (own.retransmitted_total, own.rtt_smoothed_ns, own.rtt_min_ns) == (9, None, None)
    # what is gone is forgotten
    assert list(before) == [(4, True)]
    # of the other side alone there are counts, too
    third = table("senders", sender(4, False, 4, 0, 7, 0, 0, 0))
    assert transports_of(now, third, before)[4].retransmitted_total == 7
    assert list(before) == [(4, False)]
