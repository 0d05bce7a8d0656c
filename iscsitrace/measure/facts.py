"""Facts of all sessions, connections or stories together: a row for each, a value of each fact in every row.

A fact is computed when it is first read, for all rows at once. This module measures and does not judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import busy, by_subject, path, workload
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.data_commands import is_whole_transfer
from iscsitrace.measure.path import SIDES, Paths
from iscsitrace.measure.workload import Workloads
from iscsitrace.tables.numbers import narrow, sums_of
from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]
_Fact = TypeVar("_Fact")


class Remembering:
    """What is computed of an object, once."""

    @cached_property
    def _facts(self) -> dict[Callable[[Any], Any], Any]:
        return {}

    def once(self, compute: Callable[[Self], _Fact]) -> _Fact:
        """Call a function on this, once; later calls return the same result."""
        if compute not in self._facts:
            self._facts[compute] = compute(self)
        fact: _Fact = self._facts[compute]
        return fact


class Facts(Remembering):
    """A table of facts, with a row for each subject: session, connection or story."""

    def __init__(self, source: Source, place_of: Callable[[str], Array], sums_ns: Array) -> None:
        """``place_of`` has the subject of each row of the table of a name, -1 for none. ``sums_ns`` is the time
        breakdown of each subject: int64 nanoseconds, shape (subjects, uses, PARTS), with the uses of ``busy``.
        """
        self.table = source
        self.sums_ns = sums_ns
        self.jobs_ns: Array = sums_ns[:, busy.BUSY].sum(axis=1)
        """Busy time."""
        self._place_of = place_of
        self._given: dict[type, Any] = {}
        self._places: dict[str, Array] = {}

    def __len__(self) -> int:
        return len(self.sums_ns)

    def give(self, fact: object) -> None:
        """Adds what was found of the whole trace elsewhere, such as its groups."""
        self._given[type(fact)] = fact

    def given(self, kind: type[_Fact]) -> _Fact:
        """What was given of this type."""
        found: _Fact = self._given[kind]
        return found

    def only(self, numbers: Iterable[int]) -> Array:
        """These alone, as a boolean for each."""
        found = np.zeros(len(self), dtype=bool)
        found[np.fromiter(numbers, dtype=np.intp)] = True
        return found

    def forget(self) -> None:
        """Let go of what has a value for each of millions of commands or waits: facts have one for each subject."""
        self._facts = {key: fact for key, fact in self._facts.items() if getattr(fact, "shape", 0) == (len(self),)}
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


def commands(facts: Facts) -> tuple[Array, Array, Array]:
    """The commands of all subjects, each subject's in order of time: row in ``cycles``, subject, nanoseconds."""
    times, rows = facts.table("cycles").raw("command_first_ns"), facts.once(_commands_in_order)
    return rows, facts.places("cycles")[rows], times[rows]


def _commands_in_order(facts: Facts) -> Array:
    rows = by_subject.rows_in_order(facts.places("cycles"), facts.table("cycles").raw("command_first_ns"))
    return narrow(rows)


def workloads(facts: Facts) -> Workloads:
    """The workload of each subject that has complete reads or writes."""
    return workload.of_each(*facts.once(transfers))


def transfers(facts: Facts) -> tuple[Table, Array]:
    """The complete reads and writes, and the subject of each."""
    cycles, places = facts.table("cycles"), facts.places("cycles")
    is_own = cycles.each(is_whole_transfer) & (places >= 0)
    return cycles.select(is_own), places[is_own]


def paths(facts: Facts) -> Paths:
    """The path of each subject."""
    connections = facts.table("connections")
    return path.of_each(connections, facts.table("senders"), facts.places("connections"), len(facts))


def rtt_ns(facts: Facts, side: str) -> Array:
    """Least RTT between the tap and that side (``target`` or ``initiator``); -1 for none."""
    return np.asarray(facts.once(paths).rtts_ns[SIDES.index(side)])


def path_ns(facts: Facts) -> Array:
    """Least RTT of the whole path; -1 where a side of it is unknown."""
    return facts.once(paths).whole_ns
