"""When the sessions of a trace were in service: logged in, and not out (docs/method.md, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import waits
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.grouping import session_of_stretches
from iscsitrace.measure.intervals import Span, difference, merged
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Source

Array = NDArray[Any]
Intervals = tuple[Array, Array]
"""Starts and ends, disjoint and in order."""

_CUT_OFF = [CATEGORIES["ended_by"].index(name) for name in ("connection_end", "session_end", "capture_end")]


class Availability:
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
        sessions = session_of_stretches(budget)[is_out]
        firsts_ns, lasts_ns = (budget.raw(f"time_{end}_ns")[is_out] for end in ("first", "last"))
        own = {number: rows for number, rows in grouped(sessions).items() if number >= 0}
        return {number: merged(firsts_ns[rows], lasts_ns[rows]) for number, rows in own.items()}

    @cached_property
    def ends_ns(self) -> Array:
        """When each command was over for the initiator, as far as the capture shows: as `waits` has it; one that went
        with its connection or session, with the end of the session and of the outage after that.
        """
        cycles = self.source("cycles")
        waited = waits.of_trace(self.source)
        ends = waited.ends_ns(cycles)
        is_cut = waited.is_open & np.isin(cycles.raw("ended_by"), _CUT_OFF) & known(cycles, "session")
        rows = np.flatnonzero(is_cut)
        sessions = cycles.raw("session")[rows].tolist()
        until = {number: self._until(number) for number in set(sessions)}
        ends[rows] = np.maximum(ends[rows], [until[number] for number in sessions])
        return ends

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
