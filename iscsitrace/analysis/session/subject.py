"""A session or a connection under examination: the rows of every table that are about it, and its time.

What findings cost is measured against the time of its jobs: from first command to last status, less the pauses between
jobs (docs/method.md, section 4). It judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.findings.finding import Finding, shown
from iscsitrace.analysis.findings.thresholds import WARNING, WORTH_A_CHANGE
from iscsitrace.analysis.measures.budget import PARTS, Budget
from iscsitrace.analysis.session import workload
from iscsitrace.analysis.session.stretches import Stretches
from iscsitrace.analysis.session.workload import Workload
from iscsitrace.tables.table import Table

Array = NDArray[Any]

WAITS: Final = tuple(part for part in PARTS if part != "transfer")

FRAMES: Final = ("command_frame", "data_first_frame", "data_last_frame", "status_frame")
"""The columns of ``cycles`` with the frames of a task."""


def known(table: Table, name: str) -> Array:
    """True where a column is not null."""
    mask = table.mask(name)
    return np.ones(len(table), dtype=bool) if mask is None else ~mask


def frames_in(table: Table, rows: Sequence[int] | Array, *names: str) -> list[int | None]:
    """The frames in these columns of these rows, row by row."""
    picked = table.select(np.asarray(rows, dtype=np.intp))
    return [row[name] for row in picked.rows(names) for name in names]


class Subject:
    """One session, or one connection."""

    def __init__(
        self,
        label: str,
        connections: Sequence[dict[str, Any]],
        tables: dict[str, Table],
        sums: Budget | None,
        *,
        is_session: bool,
    ) -> None:
        """``connections`` are its rows of the table, ``tables`` its rows of all others (TABLES)."""
        self.label = label
        self.connections = connections
        self.tables = tables
        self.budget = sums
        self.is_session = is_session

    # --- time

    @property
    def jobs_ns(self) -> int:
        """From first command to last status, less the pauses between jobs."""
        return self.budget.jobs_ns if self.budget else 0

    def as_connection(self, number: int) -> Subject:
        """The same as its only connection, with all that is known already."""
        twin = copy(self)
        twin.label, twin.is_session = f"connection {number}", False
        return twin

    def part_ns(self, part: str) -> int:
        """What a part of the budget takes of that."""
        if self.budget is None:
            return 0
        return self.budget.parts_ns[part] - (self.budget.between_jobs_ns if part == "initiator_think" else 0)

    def share(self, amount_ns: float) -> float:
        """Share of that."""
        return amount_ns / self.jobs_ns if self.jobs_ns else 0.0

    def is_worth(self, amount_ns: float, least: float = WORTH_A_CHANGE) -> bool:
        """Whether it takes so much of that that a remedy can be felt."""
        return amount_ns > 0 and self.share(amount_ns) >= least

    def stretches(self, *parts: str) -> Stretches:
        """The stretches that these parts own, in order of time."""
        table = self.tables["budget"]
        picked = table.select(np.isin(table.raw("part"), [PARTS.index(part) for part in parts]))

        def numbers(name: str) -> Array:
            return np.where(known(picked, name), picked.raw(name), 0).astype(np.int64) - ~known(picked, name)

        return Stretches(picked.raw("time_first_ns"), picked.raw("time_last_ns"), numbers("cycle"), numbers("frame"))

    def claimed_ns(self, starts: Array, ends: Array, *parts: str) -> int:
        """How much of these parts' time lies within the intervals [start, end), which may overlap."""
        return self.stretches(*parts).within_ns(starts, ends)

    # --- tasks

    @property
    def cycles(self) -> Table:
        """All tasks."""
        return self.tables["cycles"]

    @cached_property
    def is_transfer(self) -> Array:
        """Which tasks read or wrote data: what a session is for. Inquiries and their like are not."""
        cycles = self.cycles
        words = cycles.words("operation")
        codes = [words.index(word) for word in ("read", "write") if word in words]
        return np.asarray(np.isin(cycles.raw("operation"), codes) & (cycles.raw("data_bytes") > 0))

    @cached_property
    def transfers(self) -> Table:
        """Of these, the ones that were captured whole."""
        return self.cycles.select(self.is_transfer & self.cycles.raw("is_complete"))

    @cached_property
    def workload(self) -> Workload | None:
        """What the session asks for; None where nothing was read or written."""
        return workload.of(self.transfers)

    def rows_of(self, cycle: Array) -> Array:
        """Places in ``cycles`` of cycle numbers that are there."""
        return np.searchsorted(self.cycles.raw("cycle"), cycle)

    def is_of(self, stretches: Stretches, which: Array) -> Array:
        """Which stretches belong to tasks that a mask over ``cycles`` picks."""
        has_cycle = stretches.cycle >= 0
        found = np.zeros(len(has_cycle), dtype=bool)
        found[has_cycle] = which[self.rows_of(stretches.cycle[has_cycle])]
        return found

    def waits_by_cycle(self, stretches: Stretches) -> Array:
        """Nanoseconds of the stretches by task, over ``cycles``."""
        has_cycle = stretches.cycle >= 0
        rows = self.rows_of(stretches.cycle[has_cycle])
        sums = np.bincount(rows, weights=stretches.lengths[has_cycle], minlength=len(self.cycles))
        return sums.astype(np.int64)

    def frames_of(self, rows: Sequence[int] | Array) -> list[int | None]:
        """The frames of these tasks: command, first and last data, status."""
        return frames_in(self.cycles, rows, *FRAMES)

    def evidence(self, stretches: Stretches) -> list[int | None]:
        """The frames that ended the longest waits; where none is known, those of the tasks that waited longest."""
        frames = stretches.longest().frame
        return frames[frames >= 0].tolist() or self.frames_of(self.longest_rows(stretches))

    def next_rows(self, stretches: Stretches) -> Array:
        """Places of the tasks that began when each stretch ended, or next."""
        times = self.cycles.raw("command_first_ns")
        order = np.argsort(times, kind="stable")
        return np.asarray(order[np.searchsorted(times[order], stretches.ends).clip(max=len(times) - 1)])

    def with_next(self, stretches: Stretches) -> Stretches:
        """The same; those without a task are waits for the next one to be asked for."""
        following = self.cycles.raw("cycle")[self.next_rows(stretches)]
        return replace(stretches, cycle=np.where(stretches.cycle < 0, following, stretches.cycle))

    def longest_rows(self, stretches: Stretches, count: int = 3) -> list[int]:
        """Places of the tasks that waited longest, the longest first."""
        sums = self.waits_by_cycle(stretches)
        order = np.argsort(-sums, kind="stable")[:count]
        found: list[int] = order[sums[order] > 0].tolist()
        return found

    # --- path

    def rtt_ns(self, side: str) -> int | None:
        """Least round trip, tap to that side and back (``target`` or ``initiator``), of its busiest connection."""
        found = [(row["bytes"], row[f"rtt_to_{side}_min_ns"]) for row in self.connections]
        known_ones = [each for each in found if each[1] is not None]
        return max(known_ones)[1] if known_ones else None

    @cached_property
    def path_ns(self) -> int | None:
        """Least round trip of the whole path; None when a side is unknown."""
        sides = (self.rtt_ns("target"), self.rtt_ns("initiator"))
        return None if None in sides else sum(side for side in sides if side is not None)

    # --- findings

    def finding(
        self, name: str, lost_ns: float | None, text: str, frames: Sequence[int | None], severity: str | None = None
    ) -> Finding:
        """A finding that costs so much; its severity follows from that, unless it is given."""
        share = None if lost_ns is None else self.share(lost_ns)
        if severity is None:
            severity = "warning" if (share or 0) >= WARNING else "info"
        return Finding(name, severity, share, text, shown(frames))
