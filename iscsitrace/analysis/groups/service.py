"""When the sessions of a trace were in service: logged in, and not out (docs/method.md, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups.volumes import Source
from iscsitrace.analysis.measures.budget import PARTS
from iscsitrace.analysis.measures.intervals import difference, merged
from iscsitrace.analysis.session.grouping import session_of_stretches

Array = NDArray[Any]
Intervals = tuple[Array, Array]
"""Starts and ends, disjoint and in order."""
Span = tuple[int, int]


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
