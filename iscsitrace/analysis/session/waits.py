"""What the budget says of cycles: the time of each part, and how much of it the path's delays explain. Between which
instants they were paid tells what k is made of.

A wait for an ACK is the path's as far as a round trip goes; what a delayed ACK adds is the host's.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures import budget
from iscsitrace.analysis.measures.intervals import covered_until
from iscsitrace.analysis.model.setting import Leg
from iscsitrace.analysis.session.spans import Spans, Tasks
from iscsitrace.tables.table import Table

Array = NDArray[Any]

SEEN_MIN: Final = 0.05
"""One-way delays that an interval has to have for it to be a leg: less is what the tap's hosts take."""

_LEGS: Final = {
    "read": (
        ("command to data", "the command goes out, the first data comes back"),
        ("data", "data waits for other data of its block"),
        ("data to status", "the data goes out, its ACK comes back, and with it the status"),
        ("status to command", "the status goes out, the next command comes back"),
    ),
    "write": (
        ("command to R2T", "the command goes out, the first R2T comes back"),
        ("R2T to data", "R2Ts go out, data comes back, in rounds"),
        ("data to status", "the last data goes out, the status comes back"),
        ("status to command", "the status goes out, the next command comes back"),
    ),
}


class Waits:
    """The budget of one session."""

    def __init__(self, stretches: Table, path_ns: float) -> None:
        """``path_ns`` is the least round trip of the whole path."""
        self.table = stretches
        part = stretches.raw("part")
        is_ack = part == budget.PARTS.index("ack_wait")
        is_path = is_ack | (part == budget.PARTS.index("propagation"))
        starts, ends = stretches.raw("time_first_ns")[is_path], stretches.raw("time_last_ns")[is_path]
        # the sum of both ends may be odd
        most = starts + np.int64(path_ns)
        self._starts, self._ends = starts, np.where(is_ack[is_path], np.minimum(ends, most), ends)

    def parts(self, spans: Spans) -> dict[str, Array]:
        """Nanoseconds of each part of the budget in each span."""
        lasted = budget.of_cycles(self.table, spans.starts, spans.ends)
        return {part: lasted[:, place] for place, part in enumerate(budget.PARTS)}

    def path_ns(self, starts: Array, ends: Array) -> Array:
        """How much of each interval is the path's."""
        lasted: Array = covered_until(self._starts, self._ends, ends) - covered_until(self._starts, self._ends, starts)
        return lasted

    def legs(self, tasks: Tasks, spans: Spans, weights: Array, delay_ns: float) -> tuple[Leg, ...]:
        """What k is made of: the path's part of each interval between instants of the cycle, in one-way delays."""
        edges = np.maximum.accumulate(_instants(tasks, spans), axis=1)
        found = []
        for place, (name, meaning) in enumerate(_LEGS[spans.operation]):
            lasted = self.path_ns(edges[:, place], edges[:, place + 1])
            delays = float(np.average(lasted, weights=weights)) / delay_ns
            if delays >= SEEN_MIN:
                found.append(Leg(name, delays, meaning))
        return tuple(found)


def _instants(tasks: Tasks, spans: Spans) -> Array:
    """Command, first data or R2T, last data, status, and the end of each span, in a row each."""

    def over(name: str, pick: Any, otherwise: Array) -> Array:
        """The first or last of the tasks' instants in each span, where all are known."""
        mask = tasks.table.mask(name)
        values = tasks.table.raw(name)
        known = np.ones(len(values), dtype=bool) if mask is None else ~mask
        bounds = np.column_stack([spans.first, spans.last]).ravel()
        # a last place beyond the table ends it
        reach = bounds[:-1] if bounds[-1] == len(values) else bounds
        picked = pick.reduceat(values, reach)[::2]
        are_known = np.logical_and.reduceat(known, reach)[::2]
        return np.where(are_known, picked, otherwise)

    is_read = spans.operation == "read"
    first = over("data_first_ns" if is_read else "r2t_first_ns", np.minimum, spans.starts)
    sent = over("command_last_ns", np.maximum, spans.starts)
    last = over("data_last_ns", np.maximum, sent)
    status = over("status_ns", np.maximum, last)
    return np.column_stack([spans.starts, first, last, status, spans.ends])
