"""The kernel's counters in place of estimates: columns of ``senders`` and ``budget``, where samples of TCP_INFO exist.

TCP_INFO counts the time in which the receive window or the send buffer held a sender, whatever else happened then; the
time breakdown attributes each nanosecond once, transfer first. So the counters bound the parts: over an interval,
a part is at least what the kernel counts beyond the time of all other parts, and the receive window's at most what it
counts. Within these bounds the estimate stays; what exceeds them goes to the congestion window, or comes from it. Linux
counts a full send buffer only while nothing is queued behind the last packet: that counter is no upper bound. A
congestion window that was larger than the receive window in every sample of an interval limited nothing in it: such a
wait is of unknown cause.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.partition import Partition
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table, null_value

Array = NDArray[Any]
Columns = dict[str, Any]

LEAST_INTERVAL_NS = 250_000_000
"""Counters are read over intervals of this length at least: they advance by ticks of the kernel of up to 10 ms, and a
sample is an RTT away from the packets of a tap at the other host."""

_PART = {
    name: CATEGORIES["budget_part"].index(name)
    for name in ("receive_window", "congestion_window", "send_buffer", "unknown")
}
_MOVED = ("receive_window", "congestion_window", "send_buffer")
_NULL = null_value("int64")
_COUNTERS = {"receive_window": "rwnd_limited_ns", "send_buffer": "sndbuf_limited_ns"}


@dataclass(frozen=True)
class Counted:
    """The counters of one sender's kernel over the time of its connection."""

    connection: int
    to_target: bool
    times_ns: Array
    busy_ns: Array
    rwnd_limited_ns: Array
    sndbuf_limited_ns: Array
    retransmitted: Array
    """Cumulative, one for each time; the first is the start."""
    has_small_cwnd: Array
    """Whether the congestion window was smaller than the receive window, or this is not known."""

    def total(self, counter: str) -> int:
        """What a counter of this name advanced in all."""
        values = getattr(self, counter)
        return int(values[-1] - values[0])


def counted(samples: Table, connections: Table) -> Iterator[Counted]:
    """The counters of each sender with samples of its host, within the time of its connection in the capture.

    They begin at the handshake with zero where that was captured, else with the first sample. Senders whose kernel does
    not count busy time are left out.
    """
    spans = {
        row["connection"]: row for row in connections.rows(("connection", "time_first_ns", "time_last_ns", "has_syn"))
    }
    by_sender = Partition(samples, sender_keys(samples))
    for key in by_sender:
        span, own = spans[key >> 1], by_sender.rows(key)
        times = own.raw("time_ns")
        own = own.select((times >= span["time_first_ns"]) & (times <= span["time_last_ns"]))
        if not len(own) or (own.raw("busy_ns") == _NULL).all():
            continue
        start = [span["time_first_ns"]] if span["has_syn"] else []
        values = [np.where(own.raw(name) == _NULL, 0, own.raw(name)) for name in ("busy_ns", *_COUNTERS.values())]
        segments = own["retransmitted_segments"]
        values.append(np.where(np.ma.getmaskarray(segments), 0, np.ma.getdata(segments)).astype(np.int64))
        # two hosts' samples of one socket, or files that overlap, may be out of step by a tick: counters never go back
        zeros = np.zeros(len(start), dtype=np.int64)
        busy, rwnd, sndbuf, again = (np.maximum.accumulate(np.concatenate([zeros, each])) for each in values)
        times = np.concatenate([start, own.raw("time_ns")]).astype(np.int64)
        has_small_cwnd = np.concatenate([np.ones(len(start), dtype=bool), _has_small_cwnd(own)])
        yield Counted(key >> 1, bool(key & 1), times, busy, rwnd, sndbuf, again, has_small_cwnd)


def sender_keys(table: Table) -> Array:
    """A number for each connection and direction: twice the connection, one more for data to the target."""
    keys: Array = table.raw("connection").astype(np.int64) * 2 + table.raw("to_target")
    return keys


def _has_small_cwnd(own: Table) -> Array:
    columns = [own[name] for name in ("cwnd_segments", "segment_bytes", "rwnd_bytes")]
    cwnd, size, rwnd = (np.ma.getdata(column).astype(np.int64) for column in columns)
    is_known = ~np.logical_or.reduce([np.ma.getmaskarray(column) for column in columns])
    found: Array = ~is_known | (cwnd * size <= rwnd)
    return found


def senders(columns: Columns, samples: Table, connections: Table) -> Columns:
    """The columns of ``senders`` with the kernel's counters where there are some."""
    found = {name: np.array(values) for name, values in columns.items()}
    by_sender = grouped(found["connection"].astype(np.int64) * 2 + found["to_target"])
    none = np.empty(0, dtype=np.intp)
    for each in counted(samples, connections):
        for place in by_sender.get(each.connection * 2 + each.to_target, none).tolist():
            busy, rwnd, sndbuf = (each.total(name) for name in ("busy_ns", "rwnd_limited_ns", "sndbuf_limited_ns"))
            found["kernel_busy_ns"][place] = busy
            found["kernel_retransmitted_segments"][place] = each.total("retransmitted")
            found["rwnd_limited_ns"][place] = rwnd
            # an estimate that is longer stays, within the rest of the busy time
            rest = max(0, busy - rwnd)
            found["sndbuf_limited_ns"][place] = max(sndbuf, min(found["sndbuf_limited_ns"][place], rest))
            found["cwnd_limited_ns"][place] = min(found["cwnd_limited_ns"][place], max(0, rest - sndbuf))
    return found


def budget(columns: Columns, samples: Table, connections: Table, cycles: Table) -> Columns:
    """The columns of ``budget`` with the parts of windows and send buffer within the bounds of the counters."""
    rows = {name: np.asarray(values) for name, values in columns.items()}
    cycle = rows["cycle"]
    has_cycle = cycle != null_value("uint32")
    at = np.where(has_cycle, cycle, 0).astype(np.intp)
    if not len(cycles):
        return columns
    keys = np.where(has_cycle, cycles.raw("connection")[at].astype(np.int64) * 2 + cycles.raw("is_write")[at], -1)
    # the session's time and the connection's are apart
    keys = np.where(keys < 0, -1, keys * 2 + (rows["connection"] == null_value("uint32")))
    movable = np.flatnonzero((keys >= 0) & np.isin(rows["part"], [_PART[part] for part in _MOVED]))
    movable = movable[np.lexsort((rows["time_first_ns"][movable], keys[movable]))]
    keys = keys[movable]
    edits = _Edits(rows)
    for each in counted(samples, connections):
        edges = _edges(each)
        for key in 2 * (2 * each.connection + each.to_target) + np.arange(2):
            first, last = np.searchsorted(keys, [key, key + 1])
            _bound(edits, movable[first:last], each, edges)
    return edits.applied()


def _edges(each: Counted) -> Array:
    """Places of samples that are far enough apart; the last interval may be longer."""
    kept = [0]
    for place in range(1, len(each.times_ns)):
        if each.times_ns[place] - each.times_ns[kept[-1]] >= LEAST_INTERVAL_NS:
            kept.append(place)
    if len(kept) > 1:
        kept[-1] = len(each.times_ns) - 1
    return np.array(kept)


def _bound(edits: _Edits, own: Array, each: Counted, edges: Array) -> None:
    """Moves time between the parts, interval by interval; the rows are in order of time."""
    firsts, lasts = edits.rows["time_first_ns"][own], edits.rows["time_last_ns"][own]
    for begin, end in pairwise(edges.tolist()):
        from_ns, to_ns = int(each.times_ns[begin]), int(each.times_ns[end])
        here = own[np.searchsorted(lasts, from_ns, side="right") : np.searchsorted(firsts, to_ns)]
        if not len(here):
            continue
        pieces = [piece for row in here.tolist() for piece in edits.pieces(row, from_ns, to_ns)]
        total = sum(last - first for _, first, last, _ in pieces)
        for part, counter in _COUNTERS.items():
            counter_ns = getattr(each, counter)
            counted_ns = int(counter_ns[end] - counter_ns[begin])
            estimate = sum(last - first for _, first, last, code in pieces if code == _PART[part])
            least = min(total, max(0, counted_ns - (to_ns - from_ns - total)))
            most = min(total, counted_ns) if part == "receive_window" else total
            wanted = min(max(estimate, least), most)
            if wanted < estimate:
                pieces = edits.moved(pieces, _PART[part], _PART["congestion_window"], estimate - wanted)
            elif wanted > estimate:
                pieces = edits.moved(pieces, _PART["congestion_window"], _PART[part], wanted - estimate)
        # the sample before the interval is of its start
        if not each.has_small_cwnd[begin : end + 1].any():
            edits.moved(pieces, _PART["congestion_window"], _PART["unknown"], total)


Piece = tuple[int, int, int, int]
"""Row, start and end (ns), code of the part."""


class _Edits:
    """Pieces of rows whose part changed."""

    def __init__(self, rows: Columns) -> None:
        self.rows = rows
        self._changed: dict[int, list[tuple[int, int, int]]] = {}

    def pieces(self, row: int, from_ns: int, to_ns: int) -> list[Piece]:
        """The row within an interval."""
        first, last = int(self.rows["time_first_ns"][row]), int(self.rows["time_last_ns"][row])
        return [(row, max(first, from_ns), min(last, to_ns), int(self.rows["part"][row]))]

    def moved(self, pieces: list[Piece], source: int, to: int, amount_ns: int) -> list[Piece]:
        """The pieces with that much time of one part moved to another, the earliest first."""
        found: list[Piece] = []
        for row, first, last, code in pieces:
            if code != source or amount_ns <= 0:
                found.append((row, first, last, code))
                continue
            cut = min(last, first + amount_ns)
            amount_ns -= cut - first
            found.append((row, first, cut, to))
            self._changed.setdefault(row, []).append((first, cut, to))
            if cut < last:
                found.append((row, cut, last, code))
        return found

    def applied(self) -> Columns:
        """The rows, each changed one cut into its pieces."""
        counts = np.ones(len(self.rows["part"]), dtype=np.intp)
        pieces = {row: self._cut(row) for row in self._changed}
        for row, parts in pieces.items():
            counts[row] = len(parts)
        order = np.repeat(np.arange(len(counts)), counts)
        found = {name: values[order] for name, values in self.rows.items()}
        starts = np.cumsum(counts) - counts
        for row, parts in pieces.items():
            for place, (first, last, code) in enumerate(parts, int(starts[row])):
                found["time_first_ns"][place] = first
                found["time_last_ns"][place] = last
                found["part"][place] = code
        return found

    def _cut(self, row: int) -> list[tuple[int, int, int]]:
        """Start, end and part of each piece of a row; of several changes of a piece the last one counts."""
        first, last = int(self.rows["time_first_ns"][row]), int(self.rows["time_last_ns"][row])
        code = int(self.rows["part"][row])
        changes = self._changed[row]
        edges = sorted({first, last, *(edge for change in changes for edge in change[:2])})
        parts = [code] * (len(edges) - 1)
        for begun, ended, to in changes:
            places = slice(bisect_left(edges, begun), bisect_left(edges, ended))
            parts[places] = [to] * len(parts[places])
        cuts: list[tuple[int, int, int]] = []
        for (start, end), part in zip(pairwise(edges), parts, strict=True):
            if cuts and cuts[-1][2] == part:
                cuts[-1] = (cuts[-1][0], end, part)
            else:
                cuts.append((start, end, part))
        return cuts
