"""The time breakdown of cycles: the time in each part, and how much of it the path's delay explains.

The instants between which a cycle pays these delays show what k is made of. Of a wait for an ACK one RTT is the path's;
what a delayed ACK adds is the host's.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures import budget
from iscsitrace.analysis.measures.intervals import covered_until
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.model.setting import Leg
from iscsitrace.analysis.session.spans import Commands, Spans
from iscsitrace.tables.table import Table

Array = NDArray[Any]

SEEN_MIN: Final = 0.05
"""One-way delays that make an interval a leg; shorter ones are the processing time of hosts."""

_LEGS: Final = {
    "read": (
        ("command to data", "the command goes out, the first data comes back"),
        ("data", "data waits for other data of the same command"),
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
    """The time breakdown of one session."""

    def __init__(self, stretches: Table, path_ns: float) -> None:
        """``path_ns`` is the least RTT of the whole path."""
        self.table = stretches
        part = stretches.raw("part")
        is_ack = part == budget.PARTS.index("ack_wait")
        is_path = is_ack | (part == budget.PARTS.index("propagation"))
        starts, ends = stretches.raw("time_first_ns")[is_path], stretches.raw("time_last_ns")[is_path]
        # the RTT may be an odd number
        most = starts + np.int64(path_ns)
        self._starts, self._ends = starts, np.where(is_ack[is_path], np.minimum(ends, most), ends)

    def parts(self, spans: Spans) -> dict[str, Array]:
        """Nanoseconds of each part in each span."""
        lasted = budget.of_cycles(self.table, spans.starts, spans.ends)
        return {part: lasted[:, place] for place, part in enumerate(budget.PARTS)}

    def path_ns(self, starts: Array, ends: Array) -> Array:
        """How much of each interval the path's delay explains."""
        lasted: Array = covered_until(self._starts, self._ends, ends) - covered_until(self._starts, self._ends, starts)
        return lasted

    def legs(self, commands: Commands, spans: Spans, weights: Array, delay_ns: float) -> tuple[Leg, ...]:
        """What k is made of: the path's part of each interval of the cycle, in one-way delays."""
        edges = np.maximum.accumulate(_instants(commands, spans), axis=1)
        found = []
        for place, (name, meaning) in enumerate(_LEGS[spans.operation]):
            lasted = self.path_ns(edges[:, place], edges[:, place + 1])
            delays = float(np.average(lasted, weights=weights)) / delay_ns
            if delays >= SEEN_MIN:
                found.append(Leg(name, delays, meaning))
        return tuple(found)


def _instants(commands: Commands, spans: Spans) -> Array:
    """The instants of each span, in a row: command, first data or R2T, last data, status, end."""

    def over(name: str, pick: Any, otherwise: Array) -> Array:
        """The first or last instant of the commands in each span, where all are known."""
        values = commands.table.raw(name)
        bounds = np.column_stack([spans.first, spans.last]).ravel()
        # reduceat takes no index beyond the table
        reach = bounds[:-1] if bounds[-1] == len(values) else bounds
        picked = pick.reduceat(values, reach)[::2]
        are_known = np.logical_and.reduceat(known(commands.table, name), reach)[::2]
        return np.where(are_known, picked, otherwise)

    is_read = spans.operation == "read"
    first = over("data_first_ns" if is_read else "r2t_first_ns", np.minimum, spans.starts)
    sent = over("command_last_ns", np.maximum, spans.starts)
    last = over("data_last_ns", np.maximum, sent)
    status = over("status_ns", np.maximum, last)
    return np.column_stack([spans.starts, first, last, status, spans.ends])
