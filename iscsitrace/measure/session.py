"""A measured session, or one of its connections: its rows of every table, its time, its commands and its path.

Shares are of its busy time, the time of its reads and writes (docs/method.md, section 4). This module measures and
does not judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.measure import path
from iscsitrace.measure.budget import PARTS, Budget
from iscsitrace.measure.data_commands import is_data_command, is_for, is_transfer, is_whole_transfer
from iscsitrace.measure.facts import Facts, path_ns, paths, workloads
from iscsitrace.measure.intervals import merged
from iscsitrace.measure.path import Path
from iscsitrace.measure.spans import Commands
from iscsitrace.measure.workload import Workload
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.table import Array, Table


@dataclass(frozen=True)
class Stretches:
    """Stretches of time in chosen parts: when, how long, and the command that waited."""

    starts: Array
    ends: Array
    cycle: Array
    """Number of the cycle; -1 where there is none."""
    frame: Array
    """The frame that ended it; -1 where there is none."""

    @cached_property
    def lengths(self) -> Array:
        """Length of each in nanoseconds."""
        return self.ends - self.starts

    @property
    def total_ns(self) -> int:
        """Sum of the lengths in nanoseconds."""
        return int(self.lengths.sum())

    @property
    def unbroken_ns(self) -> int:
        """The longest time without a break: stretches that touch are one."""
        firsts, lasts = merged(self.starts, self.ends)
        return int((lasts - firsts).max(initial=0))

    def where(self, which: Array) -> Stretches:
        """The stretches that a boolean mask or row numbers pick."""
        return Stretches(self.starts[which], self.ends[which], self.cycle[which], self.frame[which])

    def longest(self, count: int = 3) -> Stretches:
        """The longest stretches, the longest first."""
        return self.where(np.argsort(-self.lengths, kind="stable")[:count])

    def within_ns(self, starts: Array, ends: Array) -> int:
        """Their time within the intervals [start, end), which may overlap and come in any order."""
        is_real = ends > starts
        order = np.argsort(starts[is_real], kind="stable")
        first, last = starts[is_real][order], ends[is_real][order]
        if not len(first) or not len(self.starts):
            return 0
        # cut off what earlier intervals cover
        reached = np.concatenate([first[:1], np.maximum.accumulate(last)[:-1]])
        first = np.maximum(first, reached)
        last = np.maximum(last, first)
        covered = np.concatenate([[0], np.cumsum(last - first)])

        def until(moment: Array) -> Array:
            """Covered time before an instant."""
            place = np.searchsorted(first, moment, side="right")
            # the interval that began last may end after this instant
            beyond = np.where(place > 0, last[place - 1] - moment, 0)
            return np.asarray(covered[place] - np.maximum(beyond, 0))

        return int((until(self.ends) - until(self.starts)).sum())


WAITS: Final = tuple(part for part in PARTS if part != "transfer")

FRAMES: Final = ("command_frame", "data_first_frame", "data_last_frame", "status_frame")
"""The columns of ``cycles`` with the frames of a command."""


def frames_in(table: Table, rows: Sequence[int] | Array, *names: str) -> list[int | None]:
    """The frame numbers in these columns, row by row."""
    which = np.asarray(rows, dtype=np.intp)
    columns = [_frames_of(table, which, name) for name in names]
    return [frame for row in zip(*columns, strict=True) for frame in row]


def _frames_of(table: Table, which: Array, name: str) -> list[int | None]:
    frames, mask = table.raw(name)[which].tolist(), table.mask(name)
    if mask is None:
        return list(frames)
    return [None if is_null else frame for frame, is_null in zip(frames, mask[which].tolist(), strict=True)]


def _is_flush(cycles: Table) -> Array:
    return is_for(cycles, "flush")


def _cycle_numbers(stretches: Table) -> Array:
    return numbers_of(stretches, "cycle")


def _frames(stretches: Table) -> Array:
    return numbers_of(stretches, "frame")


class Session:
    """One session, or one connection of it."""

    def __init__(
        self,
        number: int,
        connections: Sequence[dict[str, Any]],
        senders: Sequence[dict[str, Any]],
        tables: Mapping[str, Table],
        sums: Budget | None,
        facts: Facts,
        luns: tuple[int, ...] = (),
        *,
        is_session: bool,
    ) -> None:
        """``connections`` and ``senders`` are its rows of these tables, ``tables`` those of the others by name
        (grouping.TABLES, and ``busy``); ``sums`` is its time breakdown, ``facts`` have those of all sessions, or
        connections; ``luns`` are the logical units that it reads, writes or erases, ascending.
        """
        self.number = number
        self.connections = connections
        self.senders = senders
        self.tables = tables
        self.budget = sums
        self.luns = luns
        self.facts = facts
        self.place = number
        """Its row in the facts."""
        self.is_session = is_session

    @property
    def label(self) -> str:
        """``session 0`` or ``connection 3``."""
        return f"{'session' if self.is_session else 'connection'} {self.number}"

    def fact(self, compute: Callable[[Facts], Array]) -> Any:
        """Its value of a fact: a number or boolean of Python."""
        return self.facts.once(compute)[self.place].item()

    # --- time

    @cached_property
    def jobs_ns(self) -> int:
        """Busy time."""
        return self.budget.jobs_ns if self.budget else 0

    def as_connection(self, number: int) -> Session:
        """The same data as its only connection; what was computed is kept."""
        twin = object.__new__(Session)
        twin.__dict__.update(self.__dict__)
        twin.number, twin.is_session = number, False
        return twin

    def part_ns(self, part: str) -> int:
        """Busy time in one part of the time breakdown."""
        if self.budget is None:
            return 0
        return self.budget.parts_ns[part]

    def share(self, amount_ns: float) -> float:
        """Share of the busy time."""
        return amount_ns / self.jobs_ns if self.jobs_ns else 0.0

    @property
    def busy(self) -> Table:
        """The stretches of its time breakdown that are busy time."""
        return self.tables["busy"]

    def stretches(self, *parts: str) -> Stretches:
        """The stretches of busy time in these parts, in order."""
        if parts not in self._stretches:
            self._stretches[parts] = self._stretches_in(parts)
        return self._stretches[parts]

    @cached_property
    def _stretches(self) -> dict[tuple[str, ...], Stretches]:
        return {}

    def _stretches_in(self, parts: tuple[str, ...]) -> Stretches:
        table = self.busy
        is_wanted = np.zeros(len(PARTS), dtype=bool)
        is_wanted[[PARTS.index(part) for part in parts]] = True
        rows = np.flatnonzero(is_wanted[table.raw("part")])
        numbers = (_cycle_numbers(table), _frames(table))
        return Stretches(*(each[rows] for each in (table.raw("time_first_ns"), table.raw("time_last_ns"), *numbers)))

    # --- commands

    @property
    def cycles(self) -> Table:
        """All commands."""
        return self.tables["cycles"]

    @cached_property
    def is_transfer(self) -> Array:
        """Which commands read or wrote data; non-I/O commands (INQUIRY, TEST UNIT READY) do not."""
        return self.cycles.each(is_transfer)

    @cached_property
    def is_data(self) -> Array:
        """Which commands read, write or erase data."""
        return self.cycles.each(is_data_command)

    @cached_property
    def is_flush(self) -> Array:
        """Which commands make earlier writes permanent: SYNCHRONIZE CACHE."""
        return self.cycles.each(_is_flush)

    @cached_property
    def is_whole_transfer(self) -> Array:
        """Which reads and writes are complete in the capture."""
        return self.cycles.each(is_whole_transfer)

    @cached_property
    def transfers(self) -> Table:
        """The reads and writes that are complete in the capture."""
        return self.cycles.select(self.is_whole_transfer)

    @cached_property
    def workload(self) -> Workload | None:
        """I/O size and queue depth of its reads and writes; None where there are none."""
        return self.facts.once(workloads).get(self.place)

    @cached_property
    def commands(self) -> Commands:
        """All commands in order, with the queue depth that the initiator saw."""
        return Commands(self.cycles, self.rtt_ns("initiator") or 0)

    def rows_of(self, cycle: Array) -> Array:
        """Rows of ``cycles`` by cycle number; every number has to be there."""
        return np.searchsorted(self.cycles.raw("cycle"), cycle)

    def is_of(self, stretches: Stretches, which: Array) -> Array:
        """Which stretches belong to commands that a mask over ``cycles`` picks."""
        has_cycle = stretches.cycle >= 0
        if has_cycle.all():
            return np.asarray(which[self.rows_of(stretches.cycle)])
        found = np.zeros(len(has_cycle), dtype=bool)
        found[has_cycle] = which[self.rows_of(stretches.cycle[has_cycle])]
        return found

    def waits_by_cycle(self, stretches: Stretches) -> Array:
        """Nanoseconds of the stretches by command, one value per row of ``cycles``."""
        has_cycle = stretches.cycle >= 0
        rows = self.rows_of(stretches.cycle[has_cycle])
        sums = np.bincount(rows, weights=stretches.lengths[has_cycle], minlength=len(self.cycles))
        return sums.astype(np.int64)

    def frames_of(self, rows: Sequence[int] | Array) -> list[int | None]:
        """The frames of these commands: command, first and last data, status."""
        return frames_in(self.cycles, rows, *FRAMES)

    def evidence(self, stretches: Stretches) -> list[int | None]:
        """The frames that ended the longest waits; where none is known, those of the commands that waited longest."""
        frames = stretches.longest().frame
        return frames[frames >= 0].tolist() or self.frames_of(self.longest_rows(stretches))

    def next_rows(self, stretches: Stretches) -> Array:
        """Rows of the commands that began when each stretch ended, or next."""
        times = self.cycles.raw("command_first_ns")
        order = np.argsort(times, kind="stable")
        return np.asarray(order[np.searchsorted(times[order], stretches.ends).clip(max=len(times) - 1)])

    def with_next(self, stretches: Stretches) -> Stretches:
        """The same; a stretch without a command is assigned to the command that follows."""
        if (stretches.cycle >= 0).all():
            return stretches
        following = self.cycles.raw("cycle")[self.next_rows(stretches)]
        return replace(stretches, cycle=np.where(stretches.cycle < 0, following, stretches.cycle))

    def longest_rows(self, stretches: Stretches, count: int = 3) -> list[int]:
        """Rows of the commands that waited longest, the longest first."""
        sums = self.waits_by_cycle(stretches)
        order = np.argsort(-sums, kind="stable")[:count]
        found: list[int] = order[sums[order] > 0].tolist()
        return found

    # --- path

    @cached_property
    def rtts_ns(self) -> tuple[int | None, ...]:
        """Least RTT between the tap and each of `path.SIDES`."""
        return tuple(None if each < 0 else each for each in self.facts.once(paths).rtts_ns[:, self.place].tolist())

    def rtt_ns(self, side: str) -> int | None:
        """Least RTT between the tap and that side (``target`` or ``initiator``)."""
        return self.rtts_ns[path.SIDES.index(side)]

    @property
    def path_ns(self) -> int | None:
        """Least RTT of the whole path; None where a side of it is unknown."""
        found: int = self.fact(path_ns)
        return None if found < 0 else found

    @cached_property
    def path(self) -> Path | None:
        """The path with its confidence; None where it is unknown, or zero."""
        number = self.facts.once(paths).connection[self.place]
        return path.measure(self.rtts_ns, (row for row in self.senders if row["connection"] == number))
