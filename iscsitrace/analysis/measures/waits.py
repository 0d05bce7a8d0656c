"""How long each command waited: its latency, or, without a status, the time for which it was in flight at least.

A command without a status is the slowest there is: until it was aborted or its connection ended nothing came, and
nothing ever will. One that the end of the capture cut off waited at least until there. This is the one place that says
so: tables, percentiles, plots and traces read it from here.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.distribution import percentiles
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]

UNKNOWN: Final = -1
_ABORT_TASK: Final = 1
"""RFC 7143 section 11.5.1; the others have no single command."""
_ENDS: Final = ("rst_to_target_ns", "rst_to_initiator_ns", "fin_to_target_ns", "fin_to_initiator_ns")


@dataclass(frozen=True)
class Waits:
    """One value per command."""

    least_ns: Array
    """The latency; without a status, how long it was in flight at least. UNKNOWN where packets of it are missing."""
    is_open: Array
    """Which have no status, so that the time is a lower bound."""
    is_lost: Array
    """Which of these never got one: they were aborted, or their connection was closed."""

    def ends_ns(self, cycles: Table) -> Array:
        """When each of these commands was last in flight: its status, or the end of its wait; its start, where that is
        unknown.
        """
        status = np.ma.asarray(cycles["status_ns"])
        ends = cycles.raw("command_first_ns") + np.maximum(self.least_ns, 0)
        found: Array = np.where(np.ma.getmaskarray(status), ends, np.ma.getdata(status))
        return found

    def slowest_first(self) -> Array:
        """Rows: those that never got a status, then by time; those of unknown time are left out."""
        order = np.lexsort((~self.is_open, -self.least_ns, ~self.is_lost))
        return np.asarray(order[self.least_ns[order] != UNKNOWN])

    @property
    def slowest_ns(self) -> Array:
        """The waits of the commands without a status that rank above all with one, ascending."""
        return slowest(self.latencies_ns, self.lost_ns, self.cut_off_ns)

    @property
    def latencies_ns(self) -> Array:
        """The latencies that are known."""
        is_known: Array = ~self.is_open & (self.least_ns != UNKNOWN)
        return self.least_ns[is_known]

    @property
    def lost_ns(self) -> Array:
        """The waits of the commands that never got a status."""
        return self.least_ns[self.is_open & self.is_lost]

    @property
    def cut_off_ns(self) -> Array:
        """The waits of the commands that were in flight when the capture ended."""
        return self.least_ns[self.is_open & ~self.is_lost]

    @property
    def percentiles(self) -> dict[str, int | None]:
        """``n p50 p95 p99 max`` of the latencies and of :attr:`slowest_ns`."""
        return percentiles(self.latencies_ns, self.slowest_ns)

    def select(self, rows: Array) -> Waits:
        """The commands that a mask or row numbers pick."""
        return Waits(self.least_ns[rows], self.is_open[rows], self.is_lost[rows])


def slowest(latencies_ns: Array, lost_ns: Array, cut_off_ns: Array) -> Array:
    """The waits that rank above all latencies, ascending: of commands that never got a status, and of those in flight
    that have waited longer than any with a status took. Others in flight have just begun: they say nothing yet.
    """
    longer = cut_off_ns[cut_off_ns > latencies_ns.max(initial=0)]
    return np.sort(np.concatenate([lost_ns, longer]))


def without_status(cycles: Table) -> Array:
    """Which commands have no status, unless the capture may have missed it."""
    # where a digest may follow the last data, a status is there whose time is unknown
    has_none = ~known(cycles, "status_ns") & ~known(cycles, "status")
    return np.asarray(has_none & ~cycles.raw("is_complete") & ~cycles.raw("has_capture_gap"))


def of(cycles: Table, connections: Table, task_management: Table) -> Waits:
    """The waits of these commands."""
    starts = cycles.raw("command_first_ns")
    latency = np.ma.asarray(cycles["latency_ns"])
    least_ns = np.where(np.ma.getmaskarray(latency), UNKNOWN, np.ma.getdata(latency)).astype(np.int64)
    is_open = without_status(cycles)
    rows = np.flatnonzero(is_open)
    is_lost = np.zeros(len(cycles), dtype=bool)
    last, closed = _ends(connections)
    aborts = _Aborts(task_management)
    open_rows = cycles.select(rows).rows(("cycle", "connection", "lun", "is_aborted", "command_first_ns"))
    for row, cycle in zip(rows.tolist(), open_rows, strict=True):
        end_ns = last.get(cycle["connection"], cycle["command_first_ns"])
        aborted_ns = aborts.of(cycle)
        least_ns[row] = max(0, min(end_ns, end_ns if aborted_ns is None else aborted_ns) - int(starts[row]))
        is_lost[row] = cycle["is_aborted"] or aborted_ns is not None or cycle["connection"] in closed
    return Waits(least_ns, is_open, is_lost)


def of_trace(source: Source) -> Waits:
    """The waits of all commands of a trace; ``source`` is its method ``table``."""
    return of(source("cycles"), source("connections"), source("task_management"))


def _ends(connections: Table) -> tuple[dict[int, int], set[int]]:
    """The last packet of each connection, and the connections that were closed."""
    numbers = connections.raw("connection").tolist()
    is_closed = np.any([known(connections, name) for name in _ENDS], axis=0)
    last = dict(zip(numbers, connections.raw("time_last_ns").tolist(), strict=True))
    return last, {number for number, ended in zip(numbers, np.atleast_1d(is_closed).tolist(), strict=True) if ended}


class _Aborts:
    """When the target completed task management requests: ABORT TASK by command, resets by connection."""

    def __init__(self, task_management: Table) -> None:
        self._of_command: dict[int, int] = {}
        self._resets: dict[int, list[int]] = {}
        for row in task_management.rows():
            if row["response"] != 0 or row["response_ns"] is None:
                continue
            if row["referenced_cycle"] is not None:
                self._of_command.setdefault(row["referenced_cycle"], row["response_ns"])
            elif row["function"] != _ABORT_TASK:
                insort(self._resets.setdefault(row["connection"], []), row["response_ns"])

    def of(self, cycle: dict[str, Any]) -> int | None:
        """When it had aborted a command: the response of its ABORT TASK, or of the first reset after it was sent."""
        own = self._of_command.get(cycle["cycle"])
        if own is not None or not cycle["is_aborted"]:
            return own
        resets = self._resets.get(cycle["connection"], [])
        place = bisect_right(resets, cycle["command_first_ns"])
        return resets[place] if place < len(resets) else None
