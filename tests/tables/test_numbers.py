"""Rows by an integer of each, small or large, against NumPy's sorts and Python's sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iscsitrace.tables.numbers import distinct, first_rows, narrow, order_of, places_of, rows_of_each, sums_of

SMALL = st.integers(-1, 6)
AROUND = st.sampled_from([-(1 << 16), -1, 0, (1 << 15) - 1, 1 << 15, (1 << 16) - 1, 1 << 16, 1 << 17, 1 << 62])
NUMBERS = st.lists(st.one_of(SMALL, AROUND), max_size=20) | st.lists(SMALL, max_size=20)


@given(NUMBERS)
@example([0, -(1 << 16), 1])
def test_rows_in_order(numbers: list[int]) -> None:
    order = order_of(np.array(numbers, dtype=np.int64)).tolist()
    assert order == sorted(range(len(numbers)), key=lambda row: numbers[row])
    ordered = sorted(numbers)
    assert first_rows(np.array(ordered)).tolist() == sorted(
        {number: ordered.index(number) for number in numbers}.values()
    )


@given(NUMBERS, st.lists(st.one_of(SMALL, AROUND), max_size=8))
def test_rows_of_each_integer(numbers: list[int], wanted: list[int]) -> None:
    found = [rows.tolist() for rows in rows_of_each(np.array(numbers, dtype=np.int64), wanted)]
    assert found == [[row for row, number in enumerate(numbers) if number == each] for each in wanted]


@given(NUMBERS)
def test_each_integer_once(numbers: list[int]) -> None:
    each, place = distinct(np.array(numbers, dtype=np.int64))
    assert each.tolist() == sorted(set(numbers))
    assert each[place].tolist() == numbers


@given(NUMBERS, st.sets(st.one_of(SMALL, AROUND), max_size=8))
def test_places(numbers: list[int], wanted: set[int]) -> None:
    each = sorted(wanted)
    found = places_of(np.array(numbers, dtype=np.int64), np.array(each, dtype=np.int64)).tolist()
    assert found == [each.index(number) if number in wanted else -1 for number in numbers]


LIMITS = np.iinfo(np.int64)
AMOUNTS = st.integers(-9, 9) | st.sampled_from([1 << 53, (1 << 53) - 1, 1 - (1 << 53), LIMITS.max, LIMITS.min])


@given(st.lists(st.tuples(st.integers(0, 4), AMOUNTS), max_size=12))
@example([(0, LIMITS.min), (1, 1)])
@example([(0, (1 << 53) - 1), (0, 2)])
def test_sums_are_exact(rows: list[tuple[int, int]]) -> None:
    numbers, amounts = (np.array([row[place] for row in rows], dtype=np.int64) for place in (0, 1))
    # as int64 they go round
    wanted = [sum(amount for number, amount in rows if number == each) for each in range(6)]
    modulus = 1 << 64
    assert [each % modulus for each in sums_of(numbers, amounts, 6).tolist()] == [each % modulus for each in wanted]


@pytest.mark.parametrize(("greatest", "dtype"), [((1 << 31) - 1, "int32"), (1 << 31, "int64")])
def test_numbers_are_narrow_where_they_fit(greatest: int, dtype: str) -> None:
    found = narrow(np.array([-1, 0, greatest], dtype=np.int64))
    assert (found.dtype, found.tolist()) == (dtype, [-1, 0, greatest])
    assert len(narrow(np.zeros(0, dtype=np.int64))) == 0


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
@pytest.mark.parametrize("other", [0, 3])
def test_nulls_of_unsigned_columns_are_integers_like_others(dtype: str, other: int) -> None:
    null = int(np.iinfo(dtype).max)
    numbers: Any = np.array([null, 5, other, null], dtype=dtype)
    each, place = distinct(numbers)
    assert (each.tolist(), place.tolist()) == ([other, 5, null], [2, 1, 0, 2])
    assert order_of(numbers).tolist() == [2, 1, 0, 3]
    # below, between and above; all but the null
    assert places_of(numbers, np.array([4, 5])).tolist() == [-1, 1, -1, -1]
    assert places_of(numbers, np.array([other, 5])).tolist() == [-1, 1, 0, -1]
