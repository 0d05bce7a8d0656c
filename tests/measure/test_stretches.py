"""Stretches of time within intervals, and the longest of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iscsitrace.measure.session import Stretches


def stretches(*spans: tuple[int, int]) -> Stretches:
    starts, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    return Stretches(starts, ends, np.arange(len(spans)), 10 + np.arange(len(spans)))


def within(own: list[tuple[int, int]], others: list[tuple[int, int]]) -> int:
    starts, ends = np.array(others, dtype=np.int64).reshape(-1, 2).T
    return stretches(*own).within_ns(starts, ends)


@pytest.mark.parametrize(
    ("own", "intervals", "ns"),
    [
        ([(10, 20)], [(0, 30)], 10),
        ([(10, 20)], [(10, 11)], 1),
        ([(10, 20)], [(19, 40)], 1),
        ([(10, 20)], [(0, 10), (20, 30)], 0),
        ([(10, 20), (30, 40)], [(15, 35)], 10),
        # they may overlap, lie in one another and come in any order; an empty one or one that ends before it begins
        ([(10, 20)], [(14, 18), (12, 16), (13, 14)], 6),
        ([(10, 20)], [(5, 19), (6, 7)], 9),
        ([(10, 20)], [(15, 15), (18, 12)], 0),
        ([], [(0, 9)], 0),
        ([(10, 20)], [], 0),
    ],
)
def test_time_within_intervals_is_counted_once(
    own: list[tuple[int, int]], intervals: list[tuple[int, int]], ns: int
) -> None:
    assert within(own, intervals) == ns


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


@settings(max_examples=40)
@given(spans, spans)
def test_time_within_intervals_against_counting_instants(
    own: list[tuple[int, int]], intervals: list[tuple[int, int]]
) -> None:
    own = [(min(span), max(span)) for span in own]
    covered = {at for low, high in intervals for at in range(low, high)}
    assert within(own, intervals) == sum(at in covered for low, high in own for at in range(low, high))


def test_the_longest_three_come_first() -> None:
    found = stretches((0, 5), (10, 30), (40, 45), (50, 60), (70, 75)).longest()
    assert (found.cycle.tolist(), found.frame.tolist(), found.lengths.tolist()) == (
        [1, 3, 0],
        [11, 13, 10],
        [20, 10, 5],
    )
    assert found.total_ns == 35
