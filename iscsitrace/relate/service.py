"""When the sessions of a trace were in service: logged in, and not out (docs/method.md, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.grouping import session_of_stretches
from iscsitrace.measure.intervals import Span, difference, merged
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Source

Array = NDArray[Any]
Intervals = tuple[Array, Array]
"""Starts and ends, disjoint and in order."""


class Service:
    """The lives and the outages of all sessions; ``source`` is the method ``table`` of a trace with ``budget``."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @cached_property
    def lives(self) -> dict[int, Span]:
        """First and last packet of each session; the end of the capture for one that did not end in it."""
        rows = list(self.source("sessions").rows(("session", "time_first_ns", "time_last_ns", "end", "replaces")))
        last_ns = int(self.source("connections").raw("time_last_ns").max(initial=0))
        replaced = {row["replaces"] for row in rows}
        return {
            row["session"]: (
                row["time_first_ns"],
                max(last_ns, row["time_last_ns"])
                if row["end"] == "open" and row["session"] not in replaced
                else row["time_last_ns"],
            )
            for row in rows
        }

    @cached_property
    def outages(self) -> dict[int, Intervals]:
        """The outages of each session that has any."""
        budget = self.source("budget")
        is_out = budget.raw("part") == PARTS.index("outage")
        if not is_out.any():
            return {}
        rows, sessions = budget.select(is_out), session_of_stretches(budget)[is_out]
        found = {}
        for number in np.unique(sessions[sessions >= 0]).tolist():
            own = rows.select(sessions == number)
            found[number] = merged(own.raw("time_first_ns"), own.raw("time_last_ns"))
        return found

    @cached_property
    def ends_ns(self) -> Array:
        """When each command was over for the initiator, as far as the capture shows: with its status; else with its
        abort, or with the end of its session and of the outage after that.

        A command whose status the capture missed ends when it begins: its time is unknown.
        """
        cycles = self.source("cycles")
        begun_ns, has_status = cycles.raw("command_first_ns"), known(cycles, "status_ns")
        ends = np.where(has_status, cycles.raw("status_ns"), begun_ns)
        is_open = ~has_status & ~cycles.raw("has_capture_gap") & known(cycles, "session")
        rows = np.flatnonzero(is_open)
        if not len(rows):
            return ends
        sessions = cycles.raw("session")[rows].tolist()
        until = {number: self._until(number) for number in set(sessions)}
        ends[rows] = [until[number] for number in sessions]
        aborts = self.source("task_management")
        is_end = known(aborts, "referenced_cycle") & known(aborts, "response_ns")
        aborted, at_ns = aborts.raw("referenced_cycle")[is_end].astype(np.intp), aborts.raw("response_ns")[is_end]
        is_waiting = is_open[aborted]
        np.minimum.at(ends, aborted[is_waiting], at_ns[is_waiting])
        return np.maximum(ends, begun_ns)

    def _until(self, session: int) -> int:
        last_ns = self.lives[session][1]
        starts, ends = self.outages.get(session, joined(()))
        around = ends[(starts <= last_ns) & (ends > last_ns)]
        return int(around[0]) if len(around) else last_ns

    def available(self, sessions: Sequence[int]) -> Intervals:
        """When one of these sessions was in service."""
        lives = [self.lives[number] for number in sessions if number in self.lives]
        starts, ends = (np.array([life[place] for life in lives], dtype=np.int64) for place in (0, 1))
        outages = [self.outages[number] for number in sessions if number in self.outages]
        return difference(*merged(starts, ends), *joined(outages))


def joined(several: Sequence[Intervals]) -> Intervals:
    """The time of all of these intervals."""
    if not several:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return merged(np.concatenate([starts for starts, _ in several]), np.concatenate([ends for _, ends in several]))
