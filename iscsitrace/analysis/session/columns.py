"""Measures of all sessions together: columns with one value per session, or per connection or story.

What a finding needs at least is looked up here for all of them at once, so that its code runs only where it may apply.
This module measures and does not judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures import busy
from iscsitrace.analysis.measures.budget import PARTS
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.session.path import SIDES
from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]
_Fact = TypeVar("_Fact")


class Columns:
    """Columns over some subjects: sessions, connections or stories, each by its place."""

    def __init__(self, source: Source, place_of: Callable[[str], Array], sums_ns: Array) -> None:
        """``place_of`` has the subject of each row of the table of a name, -1 for none. ``sums_ns`` is the time
        breakdown of each subject: int64 nanoseconds, shape (subjects, uses, PARTS), with the uses of ``busy``.
        """
        self.table = source
        self.sums_ns = sums_ns
        self.jobs_ns: Array = sums_ns[:, busy.BUSY].sum(axis=1)
        """Busy time."""
        self._place_of = place_of
        self._facts: dict[Callable[[Columns], Any], Any] = {}
        self._places: dict[str, Array] = {}

    def __len__(self) -> int:
        return len(self.sums_ns)

    def once(self, compute: Callable[[Columns], _Fact]) -> _Fact:
        """Call a function on these columns, once; later calls return the same result."""
        if compute not in self._facts:
            self._facts[compute] = compute(self)
        fact: _Fact = self._facts[compute]
        return fact

    def part_ns(self, part: str) -> Array:
        """Busy time in one part of the time breakdown."""
        return np.asarray(self.sums_ns[:, busy.BUSY, PARTS.index(part)])

    def share(self, amount_ns: Array) -> Array:
        """Share of the busy time; 0 where there is none."""
        return np.asarray(np.divide(amount_ns, self.jobs_ns, out=np.zeros(len(self)), where=self.jobs_ns > 0))

    def count(self, name: str, which: Callable[[Table], Array] | None = None) -> Array:
        """The rows of a table, or those for which ``which`` is true."""
        places = self.places(name)
        if which is not None:
            places = places[which(self.table(name))]
        return np.bincount(places[places >= 0], minlength=len(self))

    def total(self, name: str, *columns: str) -> Array:
        """The sum of these columns of a table: amounts that are never null."""
        places, table = self.places(name), self.table(name)
        is_own = places >= 0
        sums = np.zeros(len(self), dtype=np.int64)
        for column in columns:
            np.add.at(sums, places[is_own], table.raw(column)[is_own].astype(np.int64))
        return sums

    def places(self, name: str) -> Array:
        """The subject of each row of a table; -1 for none."""
        if name not in self._places:
            self._places[name] = self._place_of(name)
        return self._places[name]


def has_path(columns: Columns) -> Array:
    """Which have a connection with an RTT to both sides."""
    connections, senders = columns.table("connections"), columns.table("senders")
    is_whole = np.ones(len(connections), dtype=bool)
    for side in SIDES:
        is_of_path = known(senders, "rtt_path_ns") & (senders.raw("to_target") == (side == "target"))
        is_measured = np.isin(connections.raw("connection"), senders.raw("connection")[is_of_path])
        is_whole &= known(connections, f"rtt_to_{side}_min_ns") | is_measured
    return columns.count("connections", lambda _: is_whole) > 0
