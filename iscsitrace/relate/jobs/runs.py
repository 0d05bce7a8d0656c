"""Runs: the reads or writes of one connection without an idle gap between bursts of I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import path
from iscsitrace.measure.busy import longest_pauses_ns
from iscsitrace.measure.data_commands import is_whole_transfer
from iscsitrace.measure.intervals import furthest, union_lengths
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.numbers import first_rows, order_of
from iscsitrace.tables.table import Source

Array = NDArray[Any]
OF_THE_WORK: Final = 0.25
"""Share of the usual I/O size from which on a command is part of a run: smaller ones are metadata and remainders."""


@dataclass(frozen=True)
class Run:
    """Reads or writes of one connection, without an idle gap between bursts of I/O."""

    connection: int
    session: int | None
    path_ns: int | None
    operation: str
    block_bytes: int
    """I/O size of most bytes."""
    bytes: int
    busy_ns: int
    """Time with commands in flight."""
    first_ns: int
    """Time of the first command."""
    last_ns: int
    """Time of the last status."""
    last_row: int
    """Row of its last command in ``cycles``."""

    @property
    def to_target(self) -> bool:
        """Direction of its data."""
        return self.operation == "write"

    @property
    def length_ns(self) -> int:
        """From first command to last status."""
        return self.last_ns - self.first_ns

    @property
    def bytes_per_s(self) -> float:
        """Throughput over that time."""
        return self.bytes * 1e9 / max(self.length_ns, 1)

    @property
    def label(self) -> str:
        """Its name in texts."""
        return f"connection {self.connection}"


@dataclass(frozen=True)
class Runs:
    """The runs of all iSCSI connections, by connection and time: columns of the same length.

    A ``Run`` is made when it is used: of ten thousand runs few are of a job.
    """

    connection: Array
    session: Array
    """-1 for none."""
    path_ns: Array
    """-1 where it is not known."""
    nodes: Array
    """Equal for runs of one session, or between the same two nodes; -1 where neither is known."""
    is_write: Array
    block_bytes: Array
    bytes: Array
    busy_ns: Array
    first_ns: Array
    last_ns: Array
    last_row: Array

    def __len__(self) -> int:
        return len(self.connection)

    def __getitem__(self, place: int) -> Run:
        return Run(*self._rows[place])

    def __iter__(self) -> Iterator[Run]:
        return (Run(*row) for row in self._rows)

    @cached_property
    def _rows(self) -> list[tuple[Any, ...]]:
        session, path_ns = (
            [None if each < 0 else each for each in column.tolist()] for column in (self.session, self.path_ns)
        )
        operation = ["write" if each else "read" for each in self.is_write.tolist()]
        measures = (self.block_bytes, self.bytes, self.busy_ns, self.first_ns, self.last_ns, self.last_row)
        columns = (self.connection.tolist(), session, path_ns, operation, *(column.tolist() for column in measures))
        return list(zip(*columns, strict=True))


def of_trace(source: Source) -> Runs:
    """Every run of every iSCSI connection."""
    cycles, connections = source("cycles"), source("connections")
    is_iscsi = connections.raw("is_iscsi")
    place_of = np.full(int(connections.raw("connection").max(initial=0)) + 2, -1, dtype=np.int64)
    place_of[connections.raw("connection")[is_iscsi]] = np.flatnonzero(is_iscsi)
    connection = cycles.raw("connection").astype(np.int64)
    is_own = cycles.each(is_whole_transfer) & (place_of[connection.clip(max=len(place_of) - 1)] >= 0)
    rows = np.flatnonzero(is_own)
    begins = cycles.raw("command_first_ns")
    rows = rows[np.argsort(begins[rows], kind="stable")]
    rows = rows[order_of(connection[rows])]
    ends = cycles.raw("status_ns")
    rows, firsts = _split(rows, begins[rows], ends[rows], connection[rows])
    found = _measures(
        rows, firsts, begins[rows], ends[rows], cycles.raw("data_bytes")[rows], cycles.raw("is_write")[rows]
    )
    number = connection[rows[firsts]]
    place = place_of[number]
    session = numbers_of(connections, "session")[place]
    paths = path.of_each(connections, source("senders"), np.arange(len(connections)), len(connections))
    return Runs(number, session, paths.whole_ns[place], _nodes(source, session), **found)


def _split(rows: Array, begins: Array, ends: Array, connection: Array) -> tuple[Array, Array]:
    """The rows of connections that were busy at all, and the first row of each run among them.

    The rows are in order of connection and time.
    """
    is_busy = ends > begins
    busy = np.flatnonzero(is_busy)
    if not len(busy):
        return rows[:0], rows[:0]
    firsts = first_rows(connection[busy])
    since, reached = begins[busy], furthest(ends[busy], firsts)
    # each idle gap of a connection, by the row after it
    is_after = np.zeros(len(busy), dtype=bool)
    is_after[1:] = since[1:] > reached[:-1]
    is_after[firsts] = False
    after = np.flatnonzero(is_after)
    gaps = since[after] - reached[after - 1]
    place = np.searchsorted(firsts, after, side="right") - 1
    after = after[gaps > longest_pauses_ns(gaps, place, len(firsts))[place]]
    if len(busy) < len(rows):
        has_run = np.isin(connection, connection[busy[firsts]])
        rows, begins, connection, is_busy = (each[has_run] for each in (rows, begins, connection, is_busy))
        busy = np.flatnonzero(is_busy)
        # commands without a length at the start of a run are of it
        is_new = np.ones(len(rows), dtype=bool)
        is_new[1:] = (begins[1:] != begins[:-1]) | (connection[1:] != connection[:-1])
        starts = np.maximum.accumulate(np.where(is_new, np.arange(len(rows)), 0))[busy[after]]
    else:
        starts = after
    is_first = np.zeros(len(rows), dtype=bool)
    is_first[first_rows(connection)] = True
    is_first[starts] = True
    return rows, np.flatnonzero(is_first)


def _measures(
    rows: Array, firsts: Array, begins: Array, ends: Array, data_bytes: Array, is_write: Array
) -> dict[str, Array]:
    """Columns of `Runs` from the commands of all runs; each begins at one of the rows ``firsts``."""
    if not len(firsts):
        names = ("is_write", "block_bytes", "bytes", "busy_ns", "first_ns", "last_ns", "last_row")
        return {name: np.zeros(0, dtype=np.int64) for name in names}
    moved = data_bytes.astype(np.int64)
    of_writes = 2 * np.add.reduceat(np.where(is_write, moved, 0), firsts) > np.add.reduceat(moved, firsts)
    run = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(rows)))
    own = np.flatnonzero(is_write == of_writes[run])
    block_bytes = _usual(moved[own], run[own], len(firsts))
    own = own[moved[own] >= OF_THE_WORK * block_bytes[run[own]]]
    run, ends = run[own], ends[own]
    starts = first_rows(run)
    last_ns = np.maximum.reduceat(ends, starts)
    last = np.flatnonzero(ends == last_ns[run])
    last = last[first_rows(run[last])]
    return {
        "is_write": of_writes,
        "block_bytes": block_bytes,
        "bytes": np.add.reduceat(moved[own], starts),
        "busy_ns": union_lengths(begins[own], ends, starts),
        "first_ns": begins[own[starts]],
        "last_ns": last_ns,
        "last_row": rows[own[last]],
    }


def _usual(sizes: Array, run: Array, count: int) -> Array:
    """The size of most bytes in each run; the least of several."""
    if (sizes == sizes[0]).all():
        # most workloads have one size
        return np.full(count, sizes[0])
    each, place = np.unique(sizes, return_inverse=True)
    order = order_of(place)
    order = order[order_of(run[order])]
    pairs = run[order] * len(each) + place[order]
    firsts = first_rows(pairs)
    of_run, moved = run[order][firsts], np.add.reduceat(sizes[order], firsts)
    most = np.maximum.reduceat(moved, first_rows(of_run))
    best = np.flatnonzero(moved == most[of_run])
    return np.asarray(sizes[order][firsts][best[first_rows(of_run[best])]])


def _nodes(source: Source, session: Array) -> Array:
    """Column ``nodes`` of `Runs` for these sessions."""
    table = source("sessions")
    numbers, hosts, targets = (table.raw(name).tolist() for name in ("session", "initiator_name", "target_name"))
    number_of: dict[tuple[str, str], int] = {}
    of_session = np.full(max(max(numbers, default=-1), session.max(initial=-1)) + 2, -1, dtype=np.int64)
    for number, host, target in zip(numbers, hosts, targets, strict=True):
        if host and target:
            of_session[number] = number_of.setdefault((host, target), len(number_of))
    return np.where((session >= 0) & (of_session[session] < 0), len(number_of) + session, of_session[session])
