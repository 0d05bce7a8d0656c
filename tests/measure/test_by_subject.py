"""Values of many subjects at once, against NumPy for each subject alone; also where they do not fit on one line."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from iscsitrace.measure import by_subject

LIMITS = np.iinfo(np.int64)
SMALL = st.integers(-5, 20)
WIDE = st.sampled_from((LIMITS.min, -1, 0, 1, LIMITS.max)) | st.integers(LIMITS.min, LIMITS.max)


def pairs(values: st.SearchStrategy[int], least: int = 0) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Subjects with a value each."""
    return st.lists(st.tuples(st.integers(0, 4), values), min_size=least, max_size=40)


def columns(rows: list[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The subjects, and the values."""
    both = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


@given(held=pairs(SMALL) | pairs(WIDE), wanted=pairs(SMALL) | pairs(WIDE), side=st.sampled_from(("left", "right")))
def test_a_search_finds_what_numpy_finds_for_each_subject(
    held: list[tuple[int, int]], wanted: list[tuple[int, int]], side: str
) -> None:
    place, values = columns(sorted(held))
    of, instants = columns(wanted)
    found = by_subject.search(place, values, of, instants, "left" if side == "left" else "right")
    for row, (each, instant) in enumerate(wanted):
        own = np.flatnonzero(place == each)
        inside = int(np.searchsorted(values[own], instant, side="left" if side == "left" else "right"))
        if len(own):
            assert found[row] == own[0] + inside


@given(pairs(SMALL) | pairs(st.integers(-(1 << 61), 1 << 61)))
def test_medians_are_those_of_each_subject_by_nearest_rank(rows: list[tuple[int, int]]) -> None:
    place, values = columns(rows)
    found = by_subject.medians(place, values, 5)
    for each in range(5):
        own = np.sort(values[place == each])
        assert found[each] == (own[(len(own) - 1) // 2] if len(own) else 0)


@given(pairs(SMALL))
def test_the_order_is_by_subject_then_by_value(rows: list[tuple[int, int]]) -> None:
    order = by_subject.in_order(*columns(rows))
    assert [rows[row] for row in order.tolist()] == sorted(rows)
    assert by_subject.in_order(*columns(sorted(rows))).tolist() == list(range(len(rows)))


@given(pairs(SMALL, 1) | pairs(WIDE, 1))
def test_each_row_is_on_one_line_and_leads_back_to_its_subject(rows: list[tuple[int, int]]) -> None:
    place, values = columns(rows)
    subjects = np.full(len(rows), -1)
    for line, own in by_subject.lines(place, values):
        assert (subjects[own] == -1).all()
        on_line = line.at(place[own], values[own])
        subjects[own] = line.subjects(on_line)
        assert (line.values(on_line) == values[own]).all()
    assert subjects.tolist() == place.tolist()
