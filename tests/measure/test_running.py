"""Running distributions and active time, compared with those of all values at once."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.measure import throughput, workload
from iscsitrace.measure.distribution import percentiles, rank
from iscsitrace.measure.intervals import union_length
from iscsitrace.watch import totals
from iscsitrace.watch.totals import EXACT, ActiveTime, Distribution, Totals
from tests.support.tables_by_hand import table, with_waits

parts = st.lists(st.lists(st.integers(-1000, 1 << 45), max_size=40), max_size=8)


def filled(of: list[list[int]]) -> Distribution:
    found = Distribution()
    for part in of:
        found.add(np.array(part, dtype=np.int64))
    return found


@given(parts)
def test_few_values_are_kept_exactly(values: list[list[int]]) -> None:
    everything = np.array([value for part in values for value in part], dtype=np.int64)
    assert filled(values).percentiles() == percentiles(everything)


def test_nulls_are_left_out() -> None:
    found = Distribution()
    found.add(np.ma.MaskedArray([1, 2, 3], mask=[False, True, False]))
    assert found.count == 2
    assert found.percentiles()["max"] == 3


@pytest.mark.parametrize("most", [100, 10_000, 10**7, 10**10, 1 << 52])
def test_percentiles_of_many_values_are_within_a_twentieth_of_a_percent(most: int) -> None:
    generator = np.random.default_rng(7143)
    values = np.exp(generator.uniform(0, np.log(most), 3 * EXACT)).astype(np.int64)
    found = Distribution()
    for part in np.array_split(values, 7):
        found.add(part)
    exact = percentiles(values)
    for name, value in found.percentiles().items():
        expected = exact[name]
        assert expected is not None
        assert value is not None
        # the middle of a class of integers may be half of one away
        assert abs(value - expected) <= expected / 2000 + 0.5, name
    assert found.percentiles()["max"] == exact["max"]


def test_beyond_the_exact_values_a_percentile_is_the_middle_of_its_class() -> None:
    """From 2048 on a class has two values, from 4096 on four, so that it is never wider than a thousandth."""
    found = Distribution(exact=3)
    found.add(np.array([9, 2_048, 2_048]))
    assert found.percentiles() == {"n": 3, "p50": 2_048, "p95": None, "p99": None, "max": 2_048}
    found.add(np.array([4_102]))
    # 4102 is in the class from 4100 to 4103, whose middle is 4102
    assert found.percentiles() == {"n": 4, "p50": 2_049, "p95": None, "p99": None, "max": 4_102}
    found.add(np.array([2_047] * 5))
    assert found.percentiles()["p50"] == 2_047


def test_a_percentile_is_never_beyond_the_least_and_the_most() -> None:
    low, high = (Distribution(exact=1) for _ in range(2))
    low.add(np.array([2_048, 2_048, 2_048]))
    # the middle of the class is 2049
    assert low.percentiles() == {"n": 3, "p50": 2_048, "p95": None, "p99": None, "max": 2_048}
    high.add(np.array([4_103]))
    high.add(np.array([4_103]))
    # and here 4102
    assert high.percentiles() == {"n": 2, "p50": 4_103, "p95": None, "p99": None, "max": 4_103}
    assert (high.count, low.count) == (2, 3)


def test_a_distribution_of_many_values_keeps_only_counts() -> None:
    found = Distribution()
    for _ in range(4):
        found.add(np.full(EXACT, 1 << 40))
    held = sum(part.nbytes for part in vars(found)["_parts"]) + vars(found)["_counts"].nbytes
    # 31 doublings above the first, 1024 classes each
    assert held <= 8 * 1024 * 32


intervals = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), max_size=30)


@given(intervals, st.integers(1, 6))
def test_active_time_equals_that_of_all_intervals_at_once(of: list[tuple[int, int]], size: int) -> None:
    starts = np.array(sorted(start for start, _ in of), dtype=np.int64)
    lengths = np.array([length for _, length in of], dtype=np.int64)
    found = ActiveTime()
    for at in range(0, len(starts), size):
        # in order of their starts: what comes later begins no earlier than the next
        later = starts[at + size] if at + size < len(starts) else np.iinfo(np.int64).max
        part = slice(at, at + size)
        found.add(starts[part], starts[part] + lengths[part], int(later))
    assert found.total_ns == union_length(starts, starts + lengths)


def test_waiting_intervals_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(totals, "PENDING_MAX", 100)
    found = ActiveTime()
    for at in range(0, 10_000, 50):
        starts = 10 * np.arange(at, at + 50)
        # one that began at the start is never over
        found.add(starts, starts + 4, 0)
    assert len(vars(found)["_starts"]) <= 150
    assert found.total_ns == 4 * 10_000
    # what comes late is not counted again where it was given up to wait: all up to the last is 99,994 long
    found.add(np.array([0]), np.array([99_994]), 0)
    assert 4 * 10_000 < found.total_ns <= 99_994


def test_totals_of_parts_equal_those_of_all_cycles() -> None:
    """The deepest queue comes first, and one of five commands has no status."""
    rows: list[dict[str, Any]] = [
        {"cycle": number, "session": 0, "operation": "read", "is_read": True, "data_bytes": 512, "bytes": 512}
        | {"queue_depth": depth, "command_first_ns": number * 10, "status_ns": end, "is_complete": end is not None}
        for number, (depth, end) in enumerate([(9, 5), (2, 18), (3, None), (1, 36), (4, 44)])
    ]
    found = Totals()
    for part in (rows[:2], rows[2:4], rows[4:]):
        found.add(*with_waits(part), part[-1]["command_first_ns"])
    expected = [asdict(volume) for volume in throughput.measure(*with_waits(rows))]
    assert found.document()["volumes"] == expected
    assert expected[-1]["queue_depth_max"] == 9
    # 5, 8, 6 and 4 ns with a task; four have a status
    assert (expected[-1]["active_ns"], expected[-1]["iops"]) == (23, 4e9 / 23)


def test_what_has_ended_is_no_longer_kept() -> None:
    found = ActiveTime()
    found.add(np.array([0, 10]), np.array([5, 20]), 20)
    assert (len(vars(found)["_starts"]), found.total_ns) == (0, 15)
    found.add(np.array([20, 30]), np.array([25, 50]), 40)
    assert (vars(found)["_starts"].tolist(), vars(found)["_ends"].tolist(), found.total_ns) == ([40], [50], 40)


COMMANDS = (
    *((1, "read", 512), (0, "write", 4_096), (1, "read", 8_192), (None, "inquiry", 36), (0, "write", 0)),
    *((1, "read", 512), (0, "read", 1_024)),
)


def mixed_rows() -> list[dict[str, Any]]:
    """Reads and writes of two sessions, one command without a session, one without data, one without a status."""
    rows = []
    for number, (session, word, size) in enumerate(COMMANDS):
        times = {"command_first_ns": 10 * number, "status_ns": None if number == 5 else 10 * number + 7 + number}
        row = {"cycle": number, "session": session, "operation": word, f"is_{word}": True, "bytes": size} | times
        if word == "inquiry":
            del row["is_inquiry"]
        rows.append(row | {"data_bytes": size, "queue_depth": 1 + number % 3, "is_complete": number != 5})
    return rows


def totals_of(rows: list[dict[str, Any]], *connections: dict[str, Any]) -> Totals:
    found = Totals()
    for begin in range(0, len(rows), 2):
        found.add(*with_waits(rows[begin : begin + 2], *connections), 10 * begin)
    return found


def test_a_live_summary_equals_that_of_all_cycles() -> None:
    rows = mixed_rows()
    # the read without a status was in flight for 950 ns when its connection was closed
    closed = {"connection": 0, "time_last_ns": 1_000, "fin_to_target_ns": 1_000}
    found, (cycles, waited) = totals_of(rows, closed).document(), with_waits(rows, closed)
    assert found["volumes"] == [asdict(volume) for volume in throughput.measure(cycles, waited)]
    assert [(each["session"], each["cycle_count"]) for each in found["volumes"]] == [(0, 3), (1, 3), (None, 7)]
    assert found["queue_depth"] == throughput.queue_depths(cycles)
    assert found["block_sizes"] == workload.block_sizes(cycles)
    for live, whole in zip(found["latency"], workload.latencies(cycles, waited), strict=True):
        for name in ("operation", "cycle_count", "complete_cycle_count", "latency_ns", "request_ns"):
            assert live[name] == whole[name]
    assert [each["operation"] for each in found["latency"]] == ["read", "write", "inquiry"]
    assert found["latency"][0]["latency_ns"] == {
        "n": 4, "p50": 9, "p95": None, "p99": None, "max": 950, "open_count": 1,
    }  # fmt: skip
    assert Totals().document()["queue_depth"]["max"] is None


def test_turnarounds_are_added_by_operation() -> None:
    found = totals_of(mixed_rows())
    cycles = table("cycles", *mixed_rows())
    codes = cycles.raw("operation")
    found.add_turnarounds(cycles, codes[:3], np.array([5, 6, 7]))
    turnarounds = {each["operation"]: each["turnaround_ns"] for each in found.document()["latency"]}
    assert (turnarounds["read"]["p50"], turnarounds["read"]["max"], turnarounds["write"]["max"]) == (5, 7, 6)
    assert turnarounds["inquiry"]["max"] is None


def test_sizes_beyond_the_most_that_are_counted_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "SIZES_MAX", 2)
    rows = [
        {"cycle": number, "operation": "read", "is_read": True, "bytes": size, "data_bytes": size}
        for number, size in enumerate((512, 1_024, 2_048, 4_096, 512, 2_048))
    ]
    assert totals_of(rows).document()["block_sizes"] == [
        {"operation": "read", "bytes": 512, "cycle_count": 2},
        {"operation": "read", "bytes": 1_024, "cycle_count": 1},
        {"operation": "read", "bytes": None, "cycle_count": 3},
    ]


def test_waits_of_commands_that_were_cut_off_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "EXACT", 3)
    found = Totals()
    # of an open connection, so each has waited until its end
    connection = {"connection": 0, "time_last_ns": 1000}
    for begin_ns in range(0, 1000, 100):
        cycles, waited = with_waits([{"connection": 0, "command_first_ns": begin_ns, "operation": "read"}], connection)
        found.add(cycles, waited, 0)
    (operation,) = found._operations.values()
    assert operation.cut_off_ns.tolist() == [800, 900, 1000]


def test_forgotten_sessions_and_connections_stay_in_the_total() -> None:
    found = totals_of(mixed_rows())
    found.forget_sessions({1})
    assert [each["session"] for each in found.document()["volumes"]] == [1, None]
    assert (found.forgotten_sessions, found.all.cycle_count) == (1, 7)
    found.forget_sessions({1})
    assert found.forgotten_sessions == 1
    row = {"is_iscsi": True, "stream_bytes_to_target": 100, "explained_bytes_to_target": 60, "pdu_count_to_target": 2}
    found.forget(table("connections", row | {"connection": 3}, row | {"connection": 4}))
    *parts, total = found.coverage(table("connections", row | {"connection": 5}))
    assert {part.connection for part in parts} == {5}
    assert (total.stream_bytes, total.explained_bytes, total.pdu_count) == (300, 180, 6)
    assert (found.forgotten_connections, total.connection) == (2, None)


def test_ranks_equal_those_of_numpy() -> None:
    for count in range(1, 300):
        values = np.arange(count)
        for percent in (50.0, 95.0, 99.0, 100.0):
            expected = np.percentile(values, percent, method="inverted_cdf")
            assert rank(count, percent) == expected
