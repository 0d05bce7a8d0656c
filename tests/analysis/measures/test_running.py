"""Running distributions and active time, compared with those of all values at once."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.analysis.measures import volumes
from iscsitrace.analysis.measures.distribution import percentiles
from iscsitrace.analysis.measures.intervals import union_length
from iscsitrace.analysis.measures.running import active_time, distribution
from iscsitrace.analysis.measures.running.active_time import ActiveTime
from iscsitrace.analysis.measures.running.distribution import EXACT, Distribution
from iscsitrace.analysis.measures.running.totals import Totals
from tests.support.tables_by_hand import table

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
    monkeypatch.setattr(active_time, "PENDING_MAX", 100)
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
        found.add(table("cycles", *part), part[-1]["command_first_ns"])
    expected = [asdict(volume) for volume in volumes.measure(table("cycles", *rows))]
    assert found.document()["volumes"] == expected
    assert expected[-1]["queue_depth_max"] == 9
    # 5, 8, 6 and 4 ns with a task; four have a status
    assert (expected[-1]["active_ns"], expected[-1]["iops"]) == (23, 4e9 / 23)


def test_ranks_equal_those_of_numpy() -> None:
    for count in range(1, 300):
        values = np.arange(count)
        for percent in (50.0, 95.0, 99.0, 100.0):
            expected = np.percentile(values, percent, method="inverted_cdf")
            assert distribution.rank(count, percent) == expected
