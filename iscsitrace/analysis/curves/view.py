"""The view of a plot: a stretch of time, and a session, connection and direction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from iscsitrace.analysis.curves.marks import Array
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table

_CYCLE_MARGIN = 0.04
"""Margin before and after selected commands, as a share of their time."""


@dataclass(frozen=True)
class Zoom:
    """The requested view; None leaves a choice open. Times are absolute nanoseconds, both ends included."""

    session: int | None = None
    connection: int | None = None
    cycles: range | None = None
    time_from_ns: int | None = None
    time_to_ns: int | None = None
    to_target: bool | None = None


@dataclass(frozen=True)
class View:
    """The view that is shown; ``origin_ns`` is the zero of its time axis."""

    origin_ns: int
    start_ns: int
    end_ns: int
    connections: tuple[int, ...] = ()
    """The iSCSI connections shown; a plot of one connection has one."""
    session: int | None = None
    """The requested session."""
    to_target: bool = False
    """Direction of the data, in plots of one direction."""
    cycles: range | None = None
    """The requested commands."""

    @property
    def connection(self) -> int:
        """The connection of a plot of one connection."""
        return self.connections[0]

    def is_of(self, table: Table) -> Array:
        """Which rows are of the connection and direction of a plot of one connection."""
        found: Array = (table.raw("connection") == self.connection) & (table.raw("to_target") == self.to_target)
        return found

    def covers(self, times_ns: Array) -> Array:
        """Which instants are within the view."""
        return (times_ns >= self.start_ns) & (times_ns <= self.end_ns)


def of_connection(connections: Table, cycles: Table, zoom: Zoom, origin_ns: int) -> View:
    """The view of one connection: the requested one, else that of the requested commands, else the busiest."""
    rows = _connections(connections, zoom)
    if zoom.cycles is not None and zoom.connection is None:
        first = int(_of_numbers(cycles, zoom.cycles).raw("connection")[0])
        rows = [row for row in rows if row["connection"] == first] or rows
    row = max(rows, key=lambda each: _carried(each, True) + _carried(each, False))
    start_ns, end_ns = _times(cycles, zoom, *sorted((row["time_first_ns"], row["time_last_ns"])))
    return View(origin_ns, start_ns, end_ns, (row["connection"],), zoom.session, _direction([row], zoom), zoom.cycles)


def of_tasks(connections: Table, cycles: Table, zoom: Zoom, origin_ns: int) -> View:
    """The view from the first command to the last status: of a connection, of a session, or of the capture."""
    rows = _connections(connections, zoom)
    numbers = tuple(row["connection"] for row in rows)
    picked = cycles.select(picked_cycles(cycles, View(origin_ns, 0, 0, numbers, cycles=zoom.cycles)))
    if not len(picked):
        raise InputInvalid(f"nothing to draw: {_described(zoom)} has no SCSI commands")
    commands = picked.raw("command_first_ns")
    ends = np.ma.compressed(np.ma.asarray(picked["status_ns"]))
    start_ns, end_ns = _times(cycles, zoom, int(commands.min()), int(ends.max(initial=commands.max())))
    return View(origin_ns, start_ns, end_ns, numbers, zoom.session, _direction(rows, zoom), zoom.cycles)


def picked_cycles(cycles: Table, view: View) -> Array:
    """Which commands are of the view's connections and numbers, at any time."""
    keep: Array = np.isin(cycles.raw("connection"), view.connections)
    if view.cycles is not None:
        keep &= (cycles.raw("cycle") >= view.cycles.start) & (cycles.raw("cycle") < view.cycles.stop)
    return keep


def seen_cycles(cycles: Table, view: View) -> Table:
    """The commands in flight in the view; those without a status count at the time of the command."""
    status = np.ma.asarray(cycles["status_ns"])
    start = cycles.raw("command_first_ns")
    end = np.where(np.ma.getmaskarray(status), start, np.ma.getdata(status))
    return cycles.select(picked_cycles(cycles, view) & (start <= view.end_ns) & (end >= view.start_ns))


def _described(zoom: Zoom) -> str:
    """The requested scope in words."""
    if zoom.connection is not None:
        return f"connection {zoom.connection}"
    return "the capture" if zoom.session is None else f"session {zoom.session}"


def _connections(connections: Table, zoom: Zoom) -> list[dict[str, Any]]:
    """The rows of the requested iSCSI connections; at least one."""
    rows = [row for row in connections.rows() if row["is_iscsi"]]
    if not rows:
        raise InputInvalid("nothing to draw: the capture has no iSCSI connection")
    if zoom.session is not None:
        known = ", ".join(str(number) for number in dict.fromkeys(row["session"] for row in rows))
        rows = [row for row in rows if row["session"] == zoom.session]
        if not rows:
            raise InputInvalid(f"there is no session {zoom.session}; there are {known}")
    if zoom.connection is not None:
        known = ", ".join(str(row["connection"]) for row in rows)
        rows = [row for row in rows if row["connection"] == zoom.connection]
        if not rows:
            raise InputInvalid(f"there is no iSCSI connection {zoom.connection}; there are {known}")
    return rows


def _carried(row: dict[str, Any], to_target: bool) -> int:
    return int(row["captured_bytes_to_target" if to_target else "captured_bytes_to_initiator"])


def _direction(rows: Iterable[dict[str, Any]], zoom: Zoom) -> bool:
    """Whether data to the target is shown: as requested, else where it is more."""
    if zoom.to_target is not None:
        return zoom.to_target
    return sum(_carried(row, True) - _carried(row, False) for row in rows) > 0


def _of_numbers(cycles: Table, numbers: range) -> Table:
    if numbers.stop > len(cycles):
        last = f"; the capture has {len(cycles)} commands, counted from 0" if len(cycles) else "; the capture has none"
        raise InputInvalid(f"there is no cycle {numbers.stop - 1}{last}")
    return cycles.select((cycles.raw("cycle") >= numbers.start) & (cycles.raw("cycle") < numbers.stop))


def _times(cycles: Table, zoom: Zoom, start_ns: int, end_ns: int) -> tuple[int, int]:
    """The stretch of time: that of the requested commands with a margin, else all; within the requested times."""
    if zoom.cycles is not None:
        picked = _of_numbers(cycles, zoom.cycles)
        start_ns = int(picked.raw("command_first_ns").min())
        instants = (
            np.ma.compressed(np.ma.asarray(picked[name])) for name in ("status_ns", "next_command_ns", "data_acked_ns")
        )
        end_ns = max(start_ns + 1, *(int(each.max(initial=start_ns)) for each in instants))
        margin_ns = int((end_ns - start_ns) * _CYCLE_MARGIN) + 1
        start_ns, end_ns = start_ns - margin_ns, end_ns + margin_ns
    if zoom.time_from_ns is not None:
        start_ns = zoom.time_from_ns if zoom.cycles is None else max(start_ns, zoom.time_from_ns)
    if zoom.time_to_ns is not None:
        end_ns = zoom.time_to_ns if zoom.cycles is None else min(end_ns, zoom.time_to_ns)
    if end_ns < start_ns:
        raise InputInvalid("nothing to draw: the requested commands are outside of --from and --to")
    return start_ns, max(end_ns, start_ns + 1)
