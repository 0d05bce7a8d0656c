"""Why the slower side of a mirrored write was slower, by the time breakdown of both sides' sessions.

From the first command of a mirrored write to the status on a side the parts of its time breakdown add up to the time
between. So the skew is the sum of the differences of the parts. The part with the largest difference is the cause.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import budget as time_budget
from iscsitrace.measure import path
from iscsitrace.measure.intervals import covered_until, intersection
from iscsitrace.relate.mirrors.writes import MirroredWrites
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Source, Table

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
    "send_buffer": "send_buffer",
    "loss_recovery": "loss",
    "outage": "outage",
    "unknown": "unknown",
}
_BEHIND_A_LINE: Final = ("target_service", "initiator_service", "congestion_window", "ack_wait", "unknown")
"""Parts in which a wait for the line appears while another side keeps it busy."""


def with_causes(found: MirroredWrites, source: Source) -> MirroredWrites:
    """The same writes with causes, where one side finished later than the other."""
    rows = np.flatnonzero(found.skews)
    if not len(rows):
        return found
    budget = _Budget(source)
    first, last = found.first_sides[rows], found.last_sides[rows]
    session = source("cycles").raw("session").astype(np.int64)
    of_first, of_last = (session[found.side_last_rows[rows, sides]] for sides in (first, last))
    begins = found.begins[rows]
    first_ends, last_ends = (found.side_ends[rows, sides] for sides in (first, last))
    by_cause = budget.by_cause(of_last, begins, last_ends) - budget.by_cause(of_first, begins, first_ends)
    budget.move_shared_line(by_cause, of_last, of_first, begins, last_ends)
    # of the propagation time, R2T rounds that the other side did not need count separately from a longer RTT
    rounds = np.maximum(found.side_rounds[rows, last] - found.side_rounds[rows, first], 0)
    way, more = CAUSES.index("round_trip"), CAUSES.index("r2t_rounds")
    connections = source("connections")
    members = numbers_of(connections, "session")
    count = max(int(each.max(initial=-1)) for each in (members, of_last)) + 1
    of_rounds = rounds * np.maximum(path.of_each(connections, source("senders"), members, count).whole_ns[of_last], 0)
    by_cause[:, more] = np.minimum(of_rounds, np.maximum(by_cause[:, way], 0))
    by_cause[:, way] -= by_cause[:, more]
    causes, cause_ns = found.causes.copy(), found.cause_ns.copy()
    causes[rows], cause_ns[rows] = by_cause.argmax(axis=1), by_cause.max(axis=1)
    return replace(found, causes=causes, cause_ns=cause_ns)


class _Budget:
    """The time breakdown of each session over many spans of time."""

    def __init__(self, source: Source) -> None:
        self._sessions = time_budget.by_session(source("budget"))

    def by_cause(self, sessions: Array, begins: Array, ends: Array) -> Array:
        """Nanoseconds of each span by the cause that they count for: (spans, causes)."""
        found = np.zeros((len(begins), len(CAUSES)), dtype=np.int64)
        for session, own in grouped(sessions).items():
            table = self._sessions.rows(session)
            parts = time_budget.of_cycles(table, begins[own], ends[own])
            for place, part in enumerate(time_budget.PARTS):
                found[own, CAUSES.index(_CAUSE_OF_PART[part])] += parts[:, place]
            # before its first command a session has no time breakdown: the initiator had not sent it anything
            found[own, CAUSES.index("sent_later")] += ends[own] - begins[own] - parts.sum(axis=1)
            self._move_lost(found, own, table, begins[own])
        return found

    def _move_lost(self, found: Array, own: Array, table: Table, begins: Array) -> None:
        """Counts waits for the congestion window after a loss as the loss."""
        is_loss = table.raw("part") == time_budget.PARTS.index("loss_recovery")
        if not is_loss.any():
            return
        rows = own[begins >= int(table.raw("time_first_ns")[is_loss].min())]
        window, loss = CAUSES.index("congestion_window"), CAUSES.index("loss")
        found[rows, loss] += found[rows, window]
        found[rows, window] = 0

    def move_shared_line(self, found: Array, of_last: Array, of_first: Array, begins: Array, ends: Array) -> None:
        """Counts waits of the last side while the first side's data is on the line as the line: both share it."""
        line = CAUSES.index("line")
        pairs, place = np.unique(np.stack([of_last, of_first]), axis=1, return_inverse=True)
        for pair, own in grouped(place.ravel()).items():
            last, first = pairs[:, pair].tolist()
            busy = self._stretches(first, "transfer")
            for part in _BEHIND_A_LINE:
                starts, stops = intersection(*self._stretches(last, part), *busy)
                shared = covered_until(starts, stops, ends[own]) - covered_until(starts, stops, begins[own])
                cause = CAUSES.index(_CAUSE_OF_PART[part])
                shared = np.minimum(shared, np.maximum(found[own, cause], 0))
                found[own, cause] -= shared
                found[own, line] += shared

    def _stretches(self, session: int, part: str) -> tuple[Array, Array]:
        table = self._sessions.rows(session)
        picked = table.raw("part") == time_budget.PARTS.index(part)
        return table.raw("time_first_ns")[picked], table.raw("time_last_ns")[picked]
