"""The waits of all subjects together: which subject and command waited, when, and for how long.

The counterpart of ``Session.stretches`` for ``Facts``: one computation serves ten thousand sessions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import busy, by_subject
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.by_subject import NumberLine
from iscsitrace.measure.facts import Facts, commands
from iscsitrace.measure.intervals import Span
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.numbers import first_rows, grouped, narrow

Array = NDArray[Any]


@dataclass(frozen=True)
class WaitsOfAll:
    """Stretches of busy time, in the order of the table ``budget``."""

    place: Array
    """The subject of each."""
    starts: Array
    ends: Array
    row: Array
    """The row of its command in ``cycles``; -1 where there is none."""

    @cached_property
    def lengths(self) -> Array:
        """Length of each in nanoseconds."""
        return self.ends - self.starts

    def where(self, which: Array) -> WaitsOfAll:
        """The stretches that a mask or row numbers pick."""
        return WaitsOfAll(self.place[which], self.starts[which], self.ends[which], self.row[which])

    def sums_ns(self, facts: Facts) -> Array:
        """Nanoseconds of each subject."""
        return facts.sums(self.place, self.lengths)


def of_parts(facts: Facts, *parts: str) -> WaitsOfAll:
    """The stretches of busy time in these parts of the time breakdown."""
    stretches, (rows, places) = facts.table("budget"), facts.once(_busy)
    is_wanted = np.zeros(len(PARTS), dtype=bool)
    is_wanted[[PARTS.index(part) for part in parts]] = True
    is_own = is_wanted[stretches.raw("part")[rows]]
    found = stretches.select(rows[is_own])
    firsts, lasts = (found.raw(name) for name in ("time_first_ns", "time_last_ns"))
    return WaitsOfAll(places[is_own].astype(np.int64), firsts, lasts, numbers_of(found, "cycle"))


def spans(facts: Facts) -> list[tuple[Span]]:
    """From the start of the busy time of each subject until its end; both are 0 where it has none."""
    stretches, (rows, places) = facts.table("budget"), facts.once(_busy)
    first, last = (np.zeros(len(facts), dtype=np.int64) for _ in range(2))
    starts = first_rows(places)
    ends = np.append(starts[1:], len(places))[: len(starts)] - 1
    # of several values for one place the last is kept
    first[places[starts[::-1]]] = stretches.raw("time_first_ns")[rows[starts[::-1]]]
    last[places[ends]] = stretches.raw("time_last_ns")[rows[ends]]
    return [(span,) for span in zip(first.tolist(), last.tolist(), strict=True)]


def _busy(facts: Facts) -> tuple[Array, Array]:
    """The rows of ``budget`` that are busy time, and their subjects."""
    places = facts.places_once("budget")
    rows = np.flatnonzero((facts.table("budget").each(busy.uses) == busy.BUSY) & (places >= 0))
    return narrow(rows), narrow(places[rows])


def with_next(facts: Facts, waits: WaitsOfAll) -> WaitsOfAll:
    """The same; a stretch without a command is assigned to the command that follows, or to the last one."""
    alone = np.flatnonzero(waits.row < 0)
    if not len(alone):
        return waits
    rows, places, times = commands(facts)
    at = by_subject.search(places, times, waits.place[alone], waits.ends[alone])
    last = np.searchsorted(places, waits.place[alone], side="right") - 1
    row = waits.row.copy()
    row[alone] = rows[np.minimum(at, last)]
    return replace(waits, row=row)


def claimed_ns(facts: Facts, waits: WaitsOfAll, place: Array, starts: Array, ends: Array) -> Array:
    """The time of the waits of each subject within its intervals [start, end), which may overlap and come in any order.

    As ``Stretches.within_ns`` has it for one subject.
    """
    found = np.zeros(len(facts), dtype=np.int64)
    if len(waits.place) and NumberLine.of(waits.starts, waits.ends).has_room(len(facts) - 1):
        return facts.sums(waits.place, _within(waits, place, starts, ends))
    intervals, none = grouped(place), np.zeros(0, dtype=np.intp)
    for each, rows in grouped(waits.place).items():
        own, theirs = intervals.get(each, none), waits.where(rows)
        alone = replace(theirs, place=np.zeros_like(theirs.place))
        found[each] = _within(alone, np.zeros(len(own), dtype=np.int64), starts[own], ends[own]).sum()
    return found


def _within(waits: WaitsOfAll, place: Array, starts: Array, ends: Array) -> Array:
    """How much of each wait lies within the intervals of its subject."""
    line = NumberLine.of(waits.starts, waits.ends)
    # what is beyond all waits takes none of them
    starts, ends = (each.clip(waits.starts.min(), waits.ends.max()) for each in (starts, ends))
    is_real = ends > starts
    if not is_real.any():
        return np.zeros(len(waits.place), dtype=np.int64)
    place, starts, ends = place[is_real], starts[is_real], ends[is_real]
    order = by_subject.in_order(place, starts)
    place = place[order]
    first, last = line.at(place, starts[order]), line.at(place, ends[order])
    # cut off what earlier intervals cover; those of the subject before end before this one's begin
    first = np.maximum(first, np.concatenate([first[:1], np.maximum.accumulate(last)[:-1]]))
    last = np.maximum(last, first)
    covered = np.concatenate([[0], np.cumsum(last - first)])

    def until(instants: Array) -> Array:
        """Covered time before an instant."""
        moment = line.at(waits.place, instants)
        at = np.searchsorted(first, moment, side="right")
        # the interval that began last may end after this instant
        return np.asarray(covered[at] - np.where(at > 0, np.maximum(last[at - 1] - moment, 0), 0))

    return until(waits.ends) - until(waits.starts)
