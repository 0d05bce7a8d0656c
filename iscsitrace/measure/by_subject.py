"""Values of many subjects in one array: put in order and searched for all subjects at once.

A subject is a session, connection or story, by its number. What NumPy does for one sorted array is done here for one
array per subject, without a loop over ten thousand of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.numbers import first_rows, grouped, order_of

Array = NDArray[Any]

_ALONE = 0


def in_order(place: Array, values: Array) -> Array:
    """The order by subject, then by value; equal ones keep theirs."""
    # values such as times are mostly in order already
    by_value = None if (values[1:] >= values[:-1]).all() else np.argsort(values, kind="stable")
    by_place = order_of(place if by_value is None else place[by_value])
    return np.asarray(by_place if by_value is None else by_value[by_place])


def rows_in_order(place: Array, values: Array, which: Array | None = None) -> Array:
    """The rows that have a subject, in that order; of those that a mask picks, if there is one."""
    rows = np.flatnonzero(place >= 0 if which is None else which & (place >= 0))
    return np.asarray(rows[in_order(place[rows], values[rows])])


def search(place: Array, values: Array, of: Array, wanted: Array, side: Literal["left", "right"] = "left") -> Array:
    """Where each wanted value stands among the values of its subject, as ``numpy.searchsorted`` has it.

    ``place`` and ``values`` are int64, in order by both; ``of`` are the subjects of the wanted values.
    """
    if not len(values) or not len(wanted):
        return np.zeros(len(wanted), dtype=np.intp)
    line = NumberLine.of(values, wanted)
    if line.has_room(max(place[-1], of.max())):
        return np.searchsorted(line.at(place, values), line.at(of, wanted), side=side)
    found = np.empty(len(wanted), dtype=np.intp)
    for each, own in grouped(of).items():
        first, last = np.searchsorted(place, each), np.searchsorted(place, each, side="right")
        found[own] = first + np.searchsorted(values[first:last], wanted[own], side=side)
    return found


def first_of_each(place: Array, count: int, *keys: Array) -> Array:
    """The row of each of that many subjects that comes first by these keys, ascending; -1 where it has none.

    ``place`` is the subject of each row, -1 for none. Of equal rows the first one counts.
    """
    own = np.flatnonzero(place >= 0)
    order = own[np.lexsort((*(key[own] for key in reversed(keys)), place[own]))]
    firsts = order[first_rows(place[order])]
    found = np.full(count, -1, dtype=np.intp)
    found[place[firsts]] = firsts
    return found


def medians(place: Array, values: Array, count: int) -> Array:
    """The median of the values of each of that many subjects, by nearest rank; 0 where there is none."""
    found = np.zeros(count, dtype=values.dtype)
    for line, rows in lines(place, values):
        ranked = np.sort(line.at(place[rows], values[rows]))
        counts = np.bincount(place[rows], minlength=count)
        found[counts > 0] = line.values(ranked[(np.cumsum(counts) - (counts + 2) // 2)[counts > 0]])
    return found


def lines(place: Array, *values: Array) -> Iterator[tuple[NumberLine, Any]]:
    """One line for all subjects, and all rows; or, where their values do not fit on one, the line of each subject, and
    its rows. Nothing for no rows.
    """
    if not len(place):
        return
    line = NumberLine.of(*values)
    if line.has_room(place.max()):
        yield line, slice(None)
        return
    for each, rows in grouped(place).items():
        yield NumberLine(NumberLine.of(*(value[rows] for value in values)).first, _ALONE, each), rows


@dataclass(frozen=True)
class NumberLine:
    """One line of int64 for the values of all subjects: those of each begin where those of the one before end."""

    first: int
    length: int
    """Of the part of each subject; _ALONE for the line of one subject, on which values may wrap."""
    subject: int = 0
    """The one that it is of."""

    @classmethod
    def of(cls, *values: Array) -> NumberLine:
        """One that has room for these values of each subject."""
        first = min(int(each.min()) for each in values if len(each))
        last = max(int(each.max()) for each in values if len(each))
        return cls(first, last - first + 1)

    def has_room(self, last: int) -> bool:
        """Whether the values of subjects up to this one fit into int64."""
        return self.length * (int(last) + 1) < 1 << 63

    def at(self, place: Array, values: Array) -> Array:
        """Where each value is on the line."""
        return np.asarray((place * self.length if self.length else 0) + (values - self.first))

    def subjects(self, places: Array) -> Array:
        """The subject of the value at each place."""
        return places // self.length if self.length else np.full(len(places), self.subject)

    def values(self, places: Array) -> Array:
        """The value at each place."""
        return np.asarray((places % self.length if self.length else places) + self.first)
