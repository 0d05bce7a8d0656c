"""Runs: the reads or writes of one connection without an idle gap between bursts of I/O; which are streams of one job.

Runs of one session, or between the same initiator and target, are if they are at the same time. Others are if they also
begin together with the same operation and similar I/O sizes: a program striped over several targets, or several hosts
that each do a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from iscsitrace.measure import path
from iscsitrace.measure.busy import longest_pauses_ns
from iscsitrace.measure.data_commands import is_whole_transfer
from iscsitrace.measure.intervals import furthest, union_lengths
from iscsitrace.relate.mirrors.recognition import Mirror
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.numbers import first_rows, order_of
from iscsitrace.tables.table import Array, Source

_OF_THE_WORK: Final = 0.25
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
    own = own[moved[own] >= _OF_THE_WORK * block_bytes[run[own]]]
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


TOGETHER: Final = 0.5
"""Least overlap of two connections that are used in parallel, as a share of the shorter one's time."""
BEGIN: Final = 0.1
"""Longest time between the starts of the streams of one job, as a share of the longest one's time: a program starts
them one after the other, but soon."""
ALIKE: Final = 2.0
"""Largest ratio of the I/O sizes of two streams of one job: beyond it they are different programs."""

_PAIRS: Final = 1 << 14
"""Pairs of runs that are compared at once."""


def groups_of_streams(runs: Runs, mirrors: Sequence[Mirror] = ()) -> Iterator[list[int]]:
    """The places in ``runs`` of the streams of each job: the longest run, and one of each other connection.

    A run is of one job. The sides of a mirror are not streams of one job.
    """
    pairs = _Pairs(runs, mirrors)
    is_left = np.ones(len(runs), dtype=bool)
    places, counts = pairs.longest, pairs.counts
    while len(places):
        is_next = is_left[places]
        places, counts = places[is_next], counts[is_next]
        end = max(1, int(np.searchsorted(np.cumsum(counts), _PAIRS, side="right")))
        longest, shorter = pairs.of(places[:end])
        places, counts = places[end:], counts[end:]
        firsts, others = longest.tolist(), shorter.tolist()
        for start, stop in pairwise([*first_rows(longest).tolist(), len(firsts)]):
            if not is_left[firsts[start]]:
                continue
            members = {pairs.connection[firsts[start]]: firsts[start]}
            for other in others[start:stop]:
                if is_left[other]:
                    # the longest of each connection
                    members.setdefault(pairs.connection[other], other)
            if len(members) > 1:
                own = [*members.values()]
                is_left[own] = False
                yield pairs.order[own].tolist()


def are_related(runs: Runs, places: Sequence[int]) -> bool:
    """Whether all of these runs are of one session, or between the same two nodes."""
    nodes = runs.nodes[places]
    return bool(nodes[0] >= 0 and (nodes == nodes[0]).all())


class _Pairs:
    """Pairs of runs that are of one job. Here runs are in order of length, the longest first."""

    def __init__(self, runs: Runs, mirrors: Sequence[Mirror]) -> None:
        self.order: Array = np.lexsort((runs.connection, runs.first_ns - runs.last_ns))
        columns = (runs.nodes, runs.is_write, runs.block_bytes, runs.first_ns, runs.last_ns)
        self._nodes, self._is_write, self._block_bytes, self._first_ns, self._last_ns = (
            each[self.order] for each in columns
        )
        self.connection: list[int] = runs.connection[self.order].tolist()
        self._length_ns = self._last_ns - self._first_ns
        self._mirror, self._side = _sides(mirrors, runs.session[self.order])
        begin_ns = (BEGIN * self._length_ns).astype(np.int64)
        alike = self._begun(self._is_write, self._first_ns - begin_ns, self._first_ns + begin_ns)
        # no shorter run that overlaps this one began earlier
        related = self._begun(self._nodes, self._first_ns - self._length_ns, self._last_ns)
        self._begun_near = (alike, related)
        counts = np.stack([until - since for _, since, until in self._begun_near])
        self.longest = np.flatnonzero((counts > 1).any(axis=0))
        """The runs that may be the longest of a job."""
        self.counts: Array = counts.sum(axis=0)[self.longest]
        """How many pairs each of them has at most."""

    def _begun(self, group: Array, from_ns: Array, until_ns: Array) -> tuple[Array, Array, Array]:
        """All runs in some order, and for each run the first and the end of those of its group that began then."""
        order = np.lexsort((self._first_ns, group))
        # one key for group and time, with the rank of the time
        instants = np.unique(self._first_ns)
        step = len(instants) + 1
        keys = (group * step + np.searchsorted(instants, self._first_ns))[order]
        since = np.searchsorted(keys, group * step + np.searchsorted(instants, from_ns))
        until = np.searchsorted(keys, group * step + np.searchsorted(instants, until_ns, side="right"))
        return order, since, until

    def of(self, longest: Array) -> tuple[Array, Array]:
        """The pairs of these runs with shorter ones, in order of both."""
        found = []
        for order, since, until in self._begun_near:
            counts = (until - since)[longest]
            one = np.repeat(longest, counts)
            place = np.arange(len(one)) - np.repeat(np.cumsum(counts) - counts - since[longest], counts)
            found.append((one, order[place]))
        one, other = (np.concatenate(each) for each in zip(*found, strict=True))
        is_pair = other > one
        one, other = one[is_pair], other[is_pair]
        is_pair = self._are_together(one, other)
        one, other = one[is_pair], other[is_pair]
        order = np.lexsort((other, one))
        return one[order], other[order]

    def _are_together(self, longest: Array, shorter: Array) -> Array:
        columns = (self._first_ns, self._last_ns, self._block_bytes, self._is_write, self._nodes)
        (first_ns, other_first_ns), (last_ns, other_last_ns), sizes, operations, nodes, mirrors, sides = (
            (each[longest], each[shorter]) for each in (*columns, self._mirror, self._side)
        )
        overlap_ns = np.minimum(last_ns, other_last_ns) - np.maximum(first_ns, other_first_ns)
        is_parallel = overlap_ns >= TOGETHER * np.maximum(other_last_ns - other_first_ns, 1)
        is_related = (nodes[0] == nodes[1]) & (nodes[0] >= 0)
        is_alike = (operations[0] == operations[1]) & (np.maximum(*sizes) <= ALIKE * np.minimum(*sizes))
        begins_near = np.abs(first_ns - other_first_ns) <= BEGIN * (last_ns - first_ns)
        is_mirrored = (mirrors[0] == mirrors[1]) & (mirrors[0] >= 0) & (sides[0] != sides[1])
        return np.asarray(is_parallel & (is_related | (is_alike & begins_near)) & ~is_mirrored)


def _sides(mirrors: Sequence[Mirror], session: Array) -> tuple[Array, Array]:
    """Mirror and side of each of these sessions; -1 for none."""
    found = np.full((2, max(session.max(initial=-1), 0) + 2), -1, dtype=np.int64)
    for number, mirror in enumerate(mirrors):
        for place, side in enumerate(mirror.sides):
            found[:, [each for each in side.sessions if each < found.shape[1] - 1]] = [[number], [place]]
    return found[0][session], found[1][session]
