"""Why the last leg of a mirrored write was last, by the time budget of both legs' sessions.

From the first command of a mirrored write to the status on a leg the parts of that leg's budget add up to the time
between; so what the last leg took beyond the first is the sum of what each part took more. The largest of these is the
cause. It finds no writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups.mirrors.legs import Source
from iscsitrace.analysis.groups.mirrors.writes import MirroredWrites
from iscsitrace.analysis.measures import budget as time_budget
from iscsitrace.analysis.measures.intervals import covered_until, intersection
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table

Array = NDArray[Any]

CAUSES: Final = CATEGORIES["mirror_cause"]
_CAUSE_OF_PART: Final = {
    "transfer": "line",
    "propagation": "round_trip",
    "target_service": "target_service",
    "initiator_think": "sent_later",
    "initiator_service": "initiator_service",
    "ack_wait": "ack_wait",
    "receive_window": "receive_window",
    "congestion_window": "congestion_window",
    "loss_recovery": "loss",
    "unknown": "unknown",
}
_BEHIND_A_LINE: Final = ("target_service", "initiator_service", "congestion_window", "ack_wait", "unknown")
"""Parts that a wait for a line looks like which another leg keeps busy."""


def with_causes(found: MirroredWrites, source: Source) -> MirroredWrites:
    """The same with causes, where the last leg was done later than the first."""
    rows = np.flatnonzero(found.is_known & (found.skews > 0))
    if not len(rows):
        return found
    budget = _Budget(source)
    first, last = found.first_legs[rows], found.last_legs[rows]
    session = source("cycles").raw("session").astype(np.int64)
    of_first, of_last = (session[found.leg_last_rows[rows, legs]] for legs in (first, last))
    begins = found.begins[rows]
    first_ends, last_ends = (found.leg_ends[rows, legs] for legs in (first, last))
    by_cause = budget.by_cause(of_last, begins, last_ends) - budget.by_cause(of_first, begins, first_ends)
    budget.move_shared_line(by_cause, of_last, of_first, begins, last_ends)
    # of what the path takes, rounds that the other leg did not need are another matter than a longer way
    rounds = np.maximum(found.leg_rounds[rows, last] - found.leg_rounds[rows, first], 0)
    way, more = CAUSES.index("round_trip"), CAUSES.index("r2t_rounds")
    paths = _paths(source)
    of_rounds = rounds * np.array([paths.get(number, 0) for number in of_last.tolist()], dtype=np.int64)
    by_cause[:, more] = np.minimum(of_rounds, np.maximum(by_cause[:, way], 0))
    by_cause[:, way] -= by_cause[:, more]
    causes, cause_ns = found.causes.copy(), found.cause_ns.copy()
    causes[rows], cause_ns[rows] = by_cause.argmax(axis=1), by_cause.max(axis=1)
    return replace(found, causes=causes, cause_ns=cause_ns)


class _Budget:
    """The budget of each session, asked for many spans of time at once."""

    def __init__(self, source: Source) -> None:
        self._table = source("budget")
        self._sessions: dict[int, Table] = {}

    def _of(self, session: int) -> Table:
        if session not in self._sessions:
            self._sessions[session] = time_budget.rows_of(self._table, session=session)
        return self._sessions[session]

    def by_cause(self, sessions: Array, begins: Array, ends: Array) -> Array:
        """Nanoseconds of each span by what they would be the cause of: (spans, causes)."""
        found = np.zeros((len(begins), len(CAUSES)), dtype=np.int64)
        for session in np.unique(sessions).tolist():
            own, table = np.flatnonzero(sessions == session), self._of(session)
            parts = time_budget.of_cycles(table, begins[own], ends[own])
            for place, part in enumerate(time_budget.PARTS):
                found[own, CAUSES.index(_CAUSE_OF_PART[part])] += parts[:, place]
            # before its first command a session has no budget: it was not asked for anything
            found[own, CAUSES.index("sent_later")] += ends[own] - begins[own] - parts.sum(axis=1)
            self._move_lost(found, own, table, begins[own])
        return found

    def _move_lost(self, found: Array, own: Array, table: Table, begins: Array) -> None:
        """What waits for the congestion window after a loss is the loss's doing."""
        is_loss = table.raw("part") == time_budget.PARTS.index("loss_recovery")
        if not is_loss.any():
            return
        rows = own[begins >= int(table.raw("time_first_ns")[is_loss].min())]
        window, loss = CAUSES.index("congestion_window"), CAUSES.index("loss")
        found[rows, loss] += found[rows, window]
        found[rows, window] = 0

    def move_shared_line(self, found: Array, of_last: Array, of_first: Array, begins: Array, ends: Array) -> None:
        """What the last leg waits while the first one's data are on the line is the line's doing: both share it."""
        line = CAUSES.index("line")
        for last, first in np.unique(np.stack([of_last, of_first]), axis=1).T.tolist():
            own = np.flatnonzero((of_last == last) & (of_first == first))
            busy = self._stretches(first, "transfer")
            for part in _BEHIND_A_LINE:
                starts, stops = intersection(*self._stretches(last, part), *busy)
                shared = covered_until(starts, stops, ends[own]) - covered_until(starts, stops, begins[own])
                cause = CAUSES.index(_CAUSE_OF_PART[part])
                shared = np.minimum(shared, np.maximum(found[own, cause], 0))
                found[own, cause] -= shared
                found[own, line] += shared

    def _stretches(self, session: int, part: str) -> tuple[Array, Array]:
        table = self._of(session)
        picked = table.raw("part") == time_budget.PARTS.index(part)
        return table.raw("time_first_ns")[picked], table.raw("time_last_ns")[picked]


def _paths(source: Source) -> dict[int, int]:
    """The round trip of each session's path, by its busiest connection."""
    found: dict[int, tuple[int, int]] = {}
    moved_names = ("stream_bytes_to_target", "stream_bytes_to_initiator")
    trip_names = ("rtt_to_target_min_ns", "rtt_to_initiator_min_ns")
    for row in source("connections").rows(("session", *moved_names, *trip_names)):
        trips = [row[name] for name in trip_names]
        if row["session"] is not None and None not in trips:
            moved = sum(row[name] for name in moved_names)
            found[row["session"]] = max(found.get(row["session"], (-1, 0)), (moved, sum(trips)))
    return {number: path_ns for number, (_, path_ns) in found.items()}
