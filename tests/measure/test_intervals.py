"""Groups of intervals at once, against one group after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.measure.intervals import furthest, union_length, union_lengths

LAST = (1 << 63) - 1
INSTANTS = st.integers(0, 12) | st.sampled_from([-LAST - 1, -(1 << 61), 1 << 61, LAST])
GROUPS = st.lists(st.lists(INSTANTS, min_size=1, max_size=5), max_size=5)


def firsts_of(groups: list[list[int]]) -> np.ndarray:
    return np.cumsum([0, *map(len, groups)])[:-1]


@given(GROUPS)
def test_the_latest_instant_so_far(groups: list[list[int]]) -> None:
    """Also where all groups together are longer than any time that int64 can count."""
    instants = np.array([each for own in groups for each in own], dtype=np.int64)
    expected = [max(own[: place + 1]) for own in groups for place in range(len(own))]
    assert furthest(instants, firsts_of(groups)).tolist() == expected


SPANS = st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(-3, 8)), min_size=1, max_size=6), max_size=5)


@given(SPANS)
def test_the_union_of_each_group(drawn: list[list[tuple[int, int]]]) -> None:
    groups = [[(first, first + length) for first, length in sorted(own)] for own in drawn]
    starts, ends = (np.array([span[end] for own in groups for span in own], dtype=np.int64) for end in (0, 1))
    found = union_lengths(starts, ends, np.cumsum([0, *map(len, groups)])[:-1]).tolist()
    assert found == [len({tick for first, last in own for tick in range(first, last)}) for own in groups]
    assert found == [union_length(*np.array(own).T) for own in groups]


@pytest.mark.parametrize("null", [-LAST - 1])
def test_an_interval_without_an_end_covers_nothing(null: int) -> None:
    starts, ends = np.array([5, 6, 7]), np.array([9, null, 8])
    assert union_lengths(starts, ends, np.array([0, 2])).tolist() == [4, 1]
