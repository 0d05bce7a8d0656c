"""Measures of all sessions together: columns with one value per session, or per connection or story.

What a finding needs at least is looked up here for all of them at once, so that its code runs only where it may apply.
This module measures and does not judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures import busy, by_subject
from iscsitrace.analysis.measures.budget import PARTS
from iscsitrace.analysis.measures.data_commands import is_whole_transfer
from iscsitrace.analysis.session import path, workload
from iscsitrace.analysis.session.path import BYTES, SIDES
from iscsitrace.analysis.session.workload import Workloads
from iscsitrace.tables.numbers import first_rows, narrow, sums_of
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

    def forget(self) -> None:
        """Let go of what was computed of the tables: it has a value for each of millions of rows."""
        self._facts.clear()
        self._places.clear()

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
            places = places[self.table(name).each(which)]
        # those of no subject come first
        return np.bincount(places + 1, minlength=len(self) + 1)[1:]

    def total(self, name: str, *columns: str) -> Array:
        """The sum of these columns of a table: amounts that are never null."""
        places, table = self.places(name), self.table(name)
        is_own = places >= 0
        each = (self.sums(places[is_own], table.raw(column)[is_own].astype(np.int64)) for column in columns)
        return np.asarray(sum(each))

    def sums(self, places: Array, amounts: Array) -> Array:
        """The sum of int64 amounts of each subject; ``places`` are their subjects."""
        return sums_of(places, amounts, len(self))

    def places(self, name: str) -> Array:
        """The subject of each row of a table; -1 for none."""
        if name not in self._places:
            self._places[name] = self.places_once(name)
        return self._places[name]

    def places_once(self, name: str) -> Array:
        """The same for who asks once: they are not kept."""
        places = self._place_of(name)
        # connections that carry no iSCSI can have numbers beyond all subjects
        return places if places.max(initial=-1) < len(self) else np.where(places < len(self), places, -1)


def commands(columns: Columns) -> tuple[Array, Array, Array]:
    """The commands of all subjects, each subject's in order of time: row in ``cycles``, subject, nanoseconds."""
    times, rows = columns.table("cycles").raw("command_first_ns"), columns.once(_commands_in_order)
    return rows, columns.places("cycles")[rows], times[rows]


def _commands_in_order(columns: Columns) -> Array:
    rows = by_subject.rows_in_order(columns.places("cycles"), columns.table("cycles").raw("command_first_ns"))
    return narrow(rows)


def workloads(columns: Columns) -> Workloads:
    """The workload of each subject that has complete reads or writes."""
    return workload.of_each(*columns.once(transfers))


def transfers(columns: Columns) -> tuple[Table, Array]:
    """The complete reads and writes, and the subject of each."""
    cycles, places = columns.table("cycles"), columns.places("cycles")
    is_own = cycles.each(is_whole_transfer) & (places >= 0)
    return cycles.select(is_own), places[is_own]


def rtt_ns(columns: Columns, side: str) -> Array:
    """Least RTT between the tap and that side (``target`` or ``initiator``), as `path.busiest` has it; -1 for none."""
    return np.asarray(columns.once(_least_rtts)[SIDES.index(side)])


def path_ns(columns: Columns) -> Array:
    """Least RTT of the whole path; -1 where a side of it is unknown."""
    both = columns.once(_least_rtts)
    return np.where((both >= 0).all(axis=0), both.sum(axis=0), -1)


def _least_rtts(columns: Columns) -> Array:
    """The least RTT to each of SIDES, of the connection that stands for the path; -1 for none: shape (2, subjects)."""
    connections = columns.table("connections")
    rtts = path.least_rtts(connections, columns.table("senders"))
    moved = np.sum([connections.raw(name).astype(np.int64) for name in BYTES], axis=0)
    places = columns.places("connections")
    order = np.lexsort((-moved, -(rtts >= 0).sum(axis=0), places))
    order = order[places[order] >= 0]
    busiest = order[first_rows(places[order])]
    found = np.full((len(SIDES), len(columns)), -1, dtype=np.int64)
    found[:, places[busiest]] = rtts[:, busiest]
    return found
