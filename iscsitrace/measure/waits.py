"""How long each command waited: its latency, or, without a status, the time for which it was in flight at least.

A command without a status is the slowest there is: until it ended without one (columns ``end_ns``, ``is_lost``) nothing
came, and nothing ever will. One that the end of the capture cut off waited at least until there. Tables, percentiles,
plots and traces read it from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from iscsitrace.measure.distribution import percentiles
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Array, Source, Table

UNKNOWN: Final = -1
_ENDS: Final = ("rst_to_target_ns", "rst_to_initiator_ns", "fin_to_target_ns", "fin_to_initiator_ns")


@dataclass(frozen=True)
class Waits:
    """One value per command."""

    least_ns: Array
    """The latency; without a status, how long it was in flight at least. UNKNOWN where packets of it are missing."""
    is_open: Array
    """Which have no status, so that the time is a lower bound."""
    is_lost: Array
    """Which of these never got one, and never will (column ``is_lost``)."""

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


def of(cycles: Table, connections: Table) -> Waits:
    """The waits of these commands."""
    starts = cycles.raw("command_first_ns")
    latency = np.ma.asarray(cycles["latency_ns"])
    least_ns = np.where(np.ma.getmaskarray(latency), UNKNOWN, np.ma.getdata(latency)).astype(np.int64)
    is_open = without_status(cycles)
    rows = np.flatnonzero(is_open)
    ends, is_lost = cycles.raw("end_ns")[rows], cycles.raw("is_lost")[rows]
    # a live pass has not seen the end of those in flight
    is_in_flight = ~known(cycles, "end_ns")[rows]
    last_ns, is_closed = _connections_of(cycles.raw("connection")[rows], connections, starts[rows])
    least_ns[rows] = np.maximum(np.where(is_in_flight, last_ns, ends) - starts[rows], 0)
    every = np.zeros(len(cycles), dtype=bool)
    every[rows] = np.where(is_in_flight, is_closed, is_lost)
    return Waits(least_ns, is_open, every)


def of_trace(source: Source) -> Waits:
    """The waits of all commands of a trace; ``source`` is its method ``table``."""
    return of(source("cycles"), source("connections"))


def _connections_of(numbers: Array, connections: Table, otherwise_ns: Array) -> tuple[Array, Array]:
    """The last packet of each of these connections, and whether it was closed; unknown ones have ``otherwise_ns``."""
    order = np.argsort(connections.raw("connection"), kind="stable")
    own = connections.raw("connection")[order]
    places = np.minimum(np.searchsorted(own, numbers), max(len(own) - 1, 0))
    is_known = np.isin(numbers, own)
    rows = order[places[is_known]]
    last_ns, is_closed = otherwise_ns.copy(), np.zeros(len(numbers), dtype=bool)
    last_ns[is_known] = connections.raw("time_last_ns")[rows]
    is_closed[is_known] = np.any([known(connections, name)[rows] for name in _ENDS], axis=0)
    return last_ns, is_closed
