"""The view of a plot: a stretch of time, and a session, connection and direction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.waits import Waits
from iscsitrace.plots.marks import Array
from iscsitrace.tables.table import Table

_CYCLE_MARGIN = 0.04
"""Margin before and after selected commands, as a share of their time."""
_SHORT = 0.1
"""Time before the first data command, or after the last, that is shown, as a share of the time between them."""
_FEW = 0.05
"""Most bytes of commands that a view leaves out, as a share of all."""


@dataclass(frozen=True)
class Zoom:
    """The requested view; None leaves a choice open. Times are absolute nanoseconds, both ends included."""

    session: int | None = None
    connection: int | None = None
    cycles: range | None = None
    time_from_ns: int | None = None
    time_to_ns: int | None = None
    to_target: bool | None = None
    is_whole: bool = False
    """Whether the time before the first data command and after the last is shown in any case."""
    story: tuple[int, ...] = ()
    """Sessions that took the place of ``session``, or whose place it took: shown with it."""

    @property
    def has_times(self) -> bool:
        """Whether a part of the time was requested."""
        return self.cycles is not None or self.time_from_ns is not None or self.time_to_ns is not None


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
    left_out_ns: tuple[int, int] = (0, 0)
    """Time of the subject before and after the view that was left out without a request; of a view of commands only
    what is longer than the view.
    """

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


def of_connection(
    connections: Table, cycles: Table, zoom: Zoom, origin_ns: int, in_flight_until_ns: Array | None = None
) -> View:
    """The view of one connection: the requested one, else that of the requested commands, else the busiest of those in
    the requested time.

    ``in_flight_until_ns`` is for each command its status, or the end of its wait for one; without it a command without
    a status ends with its last packet.
    """
    rows = _connections(connections, zoom)
    if zoom.cycles is not None and zoom.connection is None:
        first = int(_of_numbers(cycles, zoom.cycles).raw("connection")[0])
        rows = [row for row in rows if row["connection"] == first] or rows
    elif zoom.has_times:
        rows = [row for row in rows if _overlaps(row, zoom)] or rows
    row = max(rows, key=lambda each: _carried(each, True) + _carried(each, False))
    first_ns, last_ns = sorted((row["time_first_ns"], row["time_last_ns"]))
    start_ns, end_ns = _times(cycles, zoom, first_ns, last_ns, in_flight_until_ns)
    if not zoom.has_times and not zoom.is_whole:
        own = cycles.select(cycles.raw("connection") == row["connection"])
        start_ns, end_ns = _around_data(own, first_ns, end_ns)
    return View(
        origin_ns, start_ns, end_ns, (row["connection"],), zoom.session, _direction([row], zoom), zoom.cycles,
        (0, 0) if zoom.has_times else (start_ns - first_ns, max(0, last_ns - end_ns)),
    )  # fmt: skip


def of_tasks(
    connections: Table,
    cycles: Table,
    zoom: Zoom,
    origin_ns: int,
    in_flight_until_ns: Array | None = None,
    *,
    is_of_data: bool = False,
) -> View:
    """The view from the first command to the last status: of a connection, of a session, or of the capture.

    ``in_flight_until_ns`` as above. ``is_of_data``: of data commands, if there are some and none are requested by
    number.
    """
    rows = _connections(connections, zoom)
    numbers = tuple(row["connection"] for row in rows)
    keep = np.flatnonzero(picked_cycles(cycles, View(origin_ns, 0, 0, numbers, cycles=zoom.cycles)))
    picked = cycles.select(keep)
    if not len(picked):
        raise InputInvalid(f"nothing to draw: {_described(zoom)} has no SCSI commands")
    is_data = is_data_command(picked)
    if is_of_data and zoom.cycles is None and is_data.any():
        picked = picked.select(is_data)
        keep = keep[is_data]
    start_ns, end_ns = int(picked.raw("command_first_ns").min()), int(ends_ns(picked).max())
    if in_flight_until_ns is not None:
        end_ns = max(end_ns, int(in_flight_until_ns[keep].max()))
    start_ns, end_ns = _times(cycles, zoom, start_ns, end_ns, in_flight_until_ns)
    left_out_ns = 0, 0
    if not zoom.has_times:
        # a login, or a logout, is no matter
        before_ns = start_ns - min(row["time_first_ns"] for row in rows)
        after_ns = max(row["time_last_ns"] for row in rows) - end_ns
        least_ns = end_ns - start_ns
        left_out_ns = before_ns if before_ns > least_ns else 0, after_ns if after_ns > least_ns else 0
    return View(origin_ns, start_ns, end_ns, numbers, zoom.session, _direction(rows, zoom), zoom.cycles, left_out_ns)


def of_streams(connections: Table, cycles: Table, zoom: Zoom, origin_ns: int) -> View:
    """The same, while its connections read and wrote."""
    found = of_tasks(connections, cycles, zoom, origin_ns)
    if zoom.has_times:
        return found
    start_ns, end_ns = _around_data(cycles.select(picked_cycles(cycles, found)), found.start_ns, found.end_ns)
    left_out_ns = start_ns - found.start_ns, found.end_ns - end_ns
    return replace(found, start_ns=start_ns, end_ns=end_ns, left_out_ns=left_out_ns)


def _around_data(cycles: Table, start_ns: int, end_ns: int) -> tuple[int, int]:
    """From shortly before the data commands to shortly after; what adds little time is kept.

    The few that inspect a new device, long before the others, do not count, nor do stragglers long after them.
    """
    data = cycles.select(is_data_command(cycles))
    if not np.ma.asarray(data["bytes"]).any():
        return start_ns, end_ns
    order = np.argsort(data.raw("command_first_ns"), kind="stable")
    # a command without a status may be in flight until the end: a stall is no idle time
    is_open = np.ma.getmaskarray(np.ma.asarray(data["status_ns"]))
    starts, ends = data.raw("command_first_ns")[order], np.where(is_open, end_ns, ends_ns(data))[order]
    moved = np.cumsum(np.ma.filled(np.ma.asarray(data["bytes"]), 0)[order].astype(np.float64))
    last_ns = int(ends.max())
    # after each command: the pause until the next, beside the time from the next on
    pauses = starts[1:] - np.maximum.accumulate(ends)[:-1]
    is_before = (pauses > _SHORT * (last_ns - starts[1:])) & (moved[:-1] <= _FEW * moved[-1])
    first_ns = int(starts[np.flatnonzero(is_before).max(initial=-1) + 1])
    is_after = (pauses > _SHORT * (starts[1:] - first_ns)) & (moved[-1] - moved[:-1] <= _FEW * moved[-1])
    last_ns = int(ends[: np.flatnonzero(is_after).min(initial=len(ends) - 1) + 1].max())
    if first_ns == last_ns:
        # one command of which nothing else is known
        return start_ns, end_ns
    short_ns, margin_ns = (int((last_ns - first_ns) * share) for share in (_SHORT, _CYCLE_MARGIN))
    return (
        first_ns - margin_ns if first_ns - start_ns > short_ns else start_ns,
        last_ns + margin_ns if end_ns - last_ns > short_ns else end_ns,
    )


def ends_ns(cycles: Table) -> Array:
    """The status of each command, or the last data, or the command itself."""
    ends = cycles.raw("command_first_ns")
    for name in ("data_last_ns", "status_ns"):
        ends = np.maximum(ends, np.ma.filled(np.ma.asarray(cycles[name]), np.iinfo(np.int64).min))
    return ends


def picked_cycles(cycles: Table, view: View) -> Array:
    """Which commands are of the view's connections and numbers, at any time."""
    keep: Array = np.isin(cycles.raw("connection"), view.connections)
    if view.cycles is not None:
        keep &= (cycles.raw("cycle") >= view.cycles.start) & (cycles.raw("cycle") < view.cycles.stop)
    return keep


def seen_cycles(cycles: Table, view: View, ends_ns: Array | None = None) -> Array:
    """Which commands were in flight in the view; ``ends_ns`` is when each was last, else those without a status count
    at the time of the command.
    """
    start = cycles.raw("command_first_ns")
    if ends_ns is None:
        status = np.ma.asarray(cycles["status_ns"])
        ends_ns = np.where(np.ma.getmaskarray(status), start, np.ma.getdata(status))
    found: Array = picked_cycles(cycles, view) & (start <= view.end_ns) & (ends_ns >= view.start_ns)
    return found


def slowest_first(cycles: Table, waited: Waits, which: Array) -> Array:
    """The rows of these commands of known latency, of data commands alone if there are any. ``waited`` are the waits of
    all cycles.
    """
    rows = np.flatnonzero(which)
    ranked = rows[waited.select(rows).slowest_first()]
    is_data = is_data_command(cycles.select(ranked))
    return np.asarray(ranked[is_data] if is_data.any() else ranked)


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
        wanted = {zoom.session, *zoom.story}
        rows = [row for row in rows if row["session"] in wanted]
        if not rows:
            raise InputInvalid(f"there is no session {zoom.session}; there are {known}")
    if zoom.connection is not None:
        known = ", ".join(str(row["connection"]) for row in rows)
        rows = [row for row in rows if row["connection"] == zoom.connection]
        if not rows:
            raise InputInvalid(f"there is no iSCSI connection {zoom.connection}; there are {known}")
    return rows


def _overlaps(row: dict[str, Any], zoom: Zoom) -> bool:
    """Whether a connection had packets before the end of the requested time, and after its start."""
    is_after = zoom.time_from_ns is None or row["time_last_ns"] >= zoom.time_from_ns
    return is_after and (zoom.time_to_ns is None or row["time_first_ns"] <= zoom.time_to_ns)


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


def _times(cycles: Table, zoom: Zoom, start_ns: int, end_ns: int, in_flight_until_ns: Array | None) -> tuple[int, int]:
    """The stretch of time: that of the requested commands with a margin, else all; within the requested times."""
    if zoom.cycles is not None:
        picked = _of_numbers(cycles, zoom.cycles)
        start_ns = int(picked.raw("command_first_ns").min())
        instants = (
            np.ma.compressed(np.ma.asarray(picked[name])) for name in ("status_ns", "next_command_ns", "data_acked_ns")
        )
        end_ns = max(start_ns + 1, *(int(each.max(initial=start_ns)) for each in instants))
        open_ns = end_ns
        if in_flight_until_ns is not None:
            open_ns = int(in_flight_until_ns[np.isin(cycles.raw("cycle"), picked.raw("cycle"))].max())
        if open_ns > end_ns:
            # what comes before and after a hang is another matter, and in a part of its time there is much of it
            end_ns = open_ns
        else:
            margin_ns = int((end_ns - start_ns) * _CYCLE_MARGIN) + 1
            start_ns, end_ns = start_ns - margin_ns, end_ns + margin_ns
    if zoom.time_from_ns is not None:
        start_ns = zoom.time_from_ns if zoom.cycles is None else max(start_ns, zoom.time_from_ns)
    if zoom.time_to_ns is not None:
        end_ns = zoom.time_to_ns if zoom.cycles is None else min(end_ns, zoom.time_to_ns)
    if end_ns < start_ns:
        if zoom.cycles is None:
            raise InputInvalid("nothing to draw: no packets after --from and before --to")
        raise InputInvalid("nothing to draw: the requested commands are outside of --from and --to")
    return start_ns, max(end_ns, start_ns + 1)
