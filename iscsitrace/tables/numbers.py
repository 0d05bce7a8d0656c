"""Rows by an integer that each row has, such as the number of its session or its connection.

They are counted where the integers are small. A table is put in order once; the rows of a number are a slice of it,
without a copy. Ten thousand sessions must not cost ten thousand selections from the whole table.

Rows as Python values are made when they are looked at, a block at a time: those of ten thousand sessions and their
connections would take 35 MB, and a person reads twenty of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from iscsitrace.tables.table import Array, Source, Table

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


class Partition:
    """The rows of a table by number; rows with a negative number belong to none."""

    def __init__(self, table: Table, numbers: Array) -> None:
        """``numbers`` are integers, one per row."""
        self._whole = table
        self._none = table.select(slice(0, 0))
        self._order: Array | None = None
        # the null of an unsigned column is its largest number
        numbers = numbers.astype(np.int64, copy=False)
        if (numbers[1:] < numbers[:-1]).any():
            self._order = narrow(order_of(numbers))
            numbers = numbers[self._order]
        starts = first_rows(numbers)
        starts = starts[numbers[starts] >= 0]
        self._edges: list[int] = np.append(starts, len(numbers)).tolist()
        self._numbers: dict[int, int] = dict(zip(numbers[starts].tolist(), range(len(starts)), strict=True))

    def __iter__(self) -> Iterator[int]:
        """The numbers that have rows, ascending."""
        return iter(self._numbers)

    def rows(self, number: int) -> Table:
        """The rows of a number, in the order of the table."""
        place = self._place(number)
        return self._none if place is None else self._rows_at(place)

    def _place(self, number: int) -> slice | None:
        """Where its rows are in order."""
        at = self._numbers.get(number)
        return None if at is None else slice(self._edges[at], self._edges[at + 1])

    def _rows_at(self, place: slice) -> Table:
        if place == slice(0, len(self._whole)):
            return self._whole
        return self._whole.select(place if self._order is None else self._order[place])

    def rows_of_several(self, numbers: Iterable[int]) -> Table:
        """The rows of these numbers, in the order of the table."""
        places = [place for place in map(self._place, {*numbers}) if place is not None]
        if not places:
            return self._none
        if len(places) == 1:
            return self._rows_at(places[0])
        if sum(place.stop - place.start for place in places) == len(self._whole):
            return self._whole
        parts = [np.arange(place.start, place.stop) for place in places]
        rows = np.concatenate(parts if self._order is None else [self._order[part] for part in parts])
        return self._whole.select(np.sort(rows))


class ByConnection:
    """The tables of a trace, called by name, with their rows by connection."""

    def __init__(self, source: Source) -> None:
        """``source`` has the tables of the whole trace."""
        self._source = source
        self._parts: dict[str, Partition] = {}

    def __call__(self, name: str) -> Table:
        """A table of the trace."""
        return self._source(name)

    def rows(self, name: str, connections: Iterable[int]) -> Table:
        """The rows of these connections in a table that has a column ``connection``, in the table's order."""
        if name not in self._parts:
            table = self(name)
            self._parts[name] = Partition(table, table.raw("connection"))
        return self._parts[name].rows_of_several(connections)


_AT_ONCE: Final = 64
"""Rows of a block: a row alone costs as much time as a dozen in a block."""
_KEPT: Final = 32
"""Blocks that are kept: sessions may have connections that began at as many different times."""


class Rows:
    """The rows of a table by their place."""

    def __init__(self, table: Table, names: Sequence[str] | None = None) -> None:
        """``names`` selects columns."""
        self._table = table
        self._names = names
        self._blocks: dict[int, list[dict[str, Any]]] = {}

    def __getitem__(self, place: int) -> dict[str, Any]:
        block, within = divmod(place, _AT_ONCE)
        if block not in self._blocks:
            if len(self._blocks) == _KEPT:
                del self._blocks[next(iter(self._blocks))]
            rows = self._table.select(slice(block * _AT_ONCE, (block + 1) * _AT_ONCE)).rows(self._names)
            self._blocks[block] = list(rows)
        return self._blocks[block][within]


class NumberedRows(Rows):
    """The rows of a table by the number that each has, such as that of its session."""

    def __init__(self, table: Table, number: str, names: Sequence[str] | None = None) -> None:
        """``number`` is the column of the numbers; ``names`` selects columns."""
        super().__init__(table, names)
        self._places = {each: place for place, each in enumerate(table.raw(number).tolist())}

    def __getitem__(self, number: int) -> dict[str, Any]:
        return super().__getitem__(self._places[number])


def serial_distances(numbers: Array, first: Array | int) -> Array:
    """Serial numbers as distances from one of them, negative before it (RFC 1982), int64."""
    distance = (numbers.astype(np.int64) - first) & 0xFFFF_FFFF
    return np.where(distance >= 1 << 31, distance - (1 << 32), distance)
