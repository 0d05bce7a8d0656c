"""The rows of tables by a number that each row has, such as its session or its connection.

The table is put in order once; the rows of a number are a slice of it, without a copy. Ten thousand sessions must not
cost ten thousand selections from the whole table.

Rows as Python values are made when they are looked at, a block at a time: those of ten thousand sessions and their
connections would take 35 MB, and a person reads twenty of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.numbers import first_rows, narrow, order_of
from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]


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
