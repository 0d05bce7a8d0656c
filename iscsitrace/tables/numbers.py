"""Rows by an integer that each row has, such as the number of its session: by counting where the integers are small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_SPARE: Final = 1 << 16
"""Integers are small if there are no more of them than rows and so many."""
_EXACT: Final = 1 << 53
"""Doubles have every integer below: counting with weights is exact, and takes a fifth of the time of ``np.add.at``."""


def order_of(numbers: Array) -> Array:
    """The rows in order of their integers; those with the same one keep their order."""
    # NumPy sorts 16-bit integers by counting
    is_small = len(numbers) and numbers.max() < 1 << 15 and numbers.min() >= -1
    return np.argsort(numbers.astype(np.int16) if is_small else numbers, kind="stable")


def narrow(numbers: Array) -> Array:
    """The same in half the memory, if they fit: numbers of rows mostly do."""
    return numbers.astype(np.int32) if numbers.max(initial=0) < 1 << 31 else numbers


def first_rows(numbers: Array) -> Array:
    """Of rows in order of their integers: the first row of each integer."""
    is_first = np.ones(len(numbers), dtype=bool)
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    return np.flatnonzero(is_first)


def rows_of_each(numbers: Array, wanted: Sequence[int]) -> list[Array]:
    """The rows that have each of these integers, in order."""
    order = order_of(numbers)
    edges = np.searchsorted(numbers[order], [[each, each + 1] for each in wanted])
    return [order[first:last] for first, last in edges.tolist()]


def sums_of(numbers: Array, amounts: Array, count: int) -> Array:
    """The int64 sums of the amounts of each integer; these are below ``count``."""
    weights = amounts.astype(np.float64)
    if np.abs(weights).sum() < _EXACT:
        return np.bincount(numbers, weights=weights, minlength=count).astype(np.int64)
    found = np.zeros(count, dtype=np.int64)
    np.add.at(found, numbers, amounts)
    return found


def distinct(numbers: Array) -> tuple[Array, Array]:
    """Each integer once, in order, and the place of each row's integer among them."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if high - low >= len(numbers) + _SPARE:
        return np.unique(numbers, return_inverse=True)
    base = numbers.dtype.type(low)
    above = (numbers - base).astype(np.intp)
    is_there = np.zeros(high - low + 1, dtype=bool)
    is_there[above] = True
    place = np.cumsum(is_there) - 1
    return np.flatnonzero(is_there).astype(numbers.dtype) + base, place[above]


def places_of(numbers: Array, each: Array) -> Array:
    """The place of each row's integer among ``each``, which is in order and has it once; -1 for nowhere."""
    if not len(each):
        return np.full(len(numbers), -1, dtype=np.intp)
    low, high = int(each[0]), int(each[-1])
    if high - low >= len(numbers) + _SPARE:
        place = np.searchsorted(each, numbers).clip(max=len(each) - 1)
        return np.where(each[place] == numbers, place, -1)
    base = numbers.dtype.type(low)
    place = np.full(high - low + 1, -1, dtype=np.intp)
    place[(each.astype(numbers.dtype) - base).astype(np.intp)] = np.arange(len(each))
    is_within = (numbers >= base) & (numbers <= numbers.dtype.type(high))
    return np.where(is_within, place[np.where(is_within, numbers - base, 0).astype(np.intp)], -1)


def grouped(numbers: Array) -> dict[int, Array]:
    """The places of each number, in order."""
    order = np.argsort(numbers, kind="stable")
    each, first = np.unique(numbers[order], return_index=True)
    return dict(zip(each.tolist(), np.split(order, first[1:]), strict=False))
