"""What the kernels of the hosts say of their TCP sockets (TCP_INFO): files of samples, their clock, and their counters.

The core reads a time and a line of ``ss -tinOH``. Lines of JSON (``t local lport peer pport`` and values of TCP_INFO,
an object a line) become such lines.

A packet passes the tap before its receiver counts it, and after its sender counted it. So each sample bounds the offset
between the clocks, however long the network took:

- bytes that it counts as received, or acknowledged, had passed the tap by then: offset >= their time at the tap - t
- bytes that it does not count as sent yet passed the tap later: offset <= their time at the tap - t

The bounds of all samples of a file hold together. A sampler that was stopped between reading the counters and the clock
contradicts the others: the offset is among those that the fewest bounds contradict. Zero is kept if it is one of them;
else it is the middle of them. Packets that the capture missed only widen the bounds. Connections whose handshake was
not captured bound nothing, because the kernel counts from the handshake on.

Counters replace estimates in columns of ``senders`` and ``budget``. TCP_INFO counts the time in which the receive
window or the send buffer held a sender, whatever else happened then; the time breakdown attributes each nanosecond
once, transfer first. So the counters bound the parts: over an interval, a part is at least what the kernel counts
beyond the time of all other parts, and the receive window's at most what it counts. Within these bounds the estimate
stays; what exceeds them goes to the congestion window, or comes from it. Linux counts a full send buffer only while
nothing is queued behind the last packet: that counter is no upper bound. A congestion window that was larger than the
receive window in every sample of an interval limited nothing in it: such a wait is of unknown cause.
"""

from __future__ import annotations

import gzip
import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.tables.numbers import Partition, grouped
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Array, Table, null_value

_GZIP = b"\x1f\x8b"
# names that differ from the words of ss; the others are the same
_WORDS = {"snd_mss": "mss"}
_WHOLE = (
    *("snd_mss", "cwnd", "ssthresh", "bytes_sent", "bytes_retrans", "bytes_acked", "bytes_received", "unacked"),
    *("lost", "sacked", "notsent", "snd_wnd"),
)
_MILLISECONDS = {"min_rtt_us": "minrtt:{}", "busy_us": "busy:{}ms"} | {
    f"{name}_us": f"{name}:{{}}ms" for name in ("rwnd_limited", "sndbuf_limited")
}


def read_samples(paths: Iterable[str | os.PathLike[str]]) -> list[tuple[str, str]]:
    """Name and text of each file, plain or compressed by gzip. InputInvalid for a file that cannot be read."""
    return [(os.fspath(path), _text(Path(path))) for path in paths]


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise InputInvalid(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    text = content.decode(errors="replace")
    if not text.lstrip().startswith("{"):
        return text
    return "\n".join(map(_line, text.splitlines()))


def _line(text: str) -> str:
    """A JSON line as a time and a line of ss; "" for any other, such as one cut short."""
    try:
        sample: dict[str, Any] = json.loads(text)
        ends = " ".join(
            f"[{sample[address]}]:{sample[port]}" for address, port in (("local", "lport"), ("peer", "pport"))
        )
        words = [f"{float(sample['t']):.9f} 0 0 {ends} {sample.get('cc', '')}"]
        if sample.get("rtt_us"):
            words.append(f"rtt:{sample['rtt_us'] / 1000}/{sample.get('rttvar_us', 0) / 1000}")
        words += [f"{_WORDS.get(name, name)}:{sample[name]}" for name in _WHOLE if name in sample]
        words += [form.format(sample[name] / 1000) for name, form in _MILLISECONDS.items() if name in sample]
        if "total_retrans" in sample:
            words.append(f"retrans:0/{sample['total_retrans']}")
        if "delivery_rate_Bps" in sample:
            words.append(f"delivery_rate {8 * sample['delivery_rate_Bps']}bps")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return " ".join(words)


@dataclass(frozen=True)
class Offset:
    """What to add to the times of a file of samples to have them on the clock of the capture (ns)."""

    offset_ns: int
    low_ns: int | None
    """Bounds; None where no sample bounds it on this side."""
    high_ns: int | None
    bound_count: int = 0
    """Bounds of all samples."""
    contradicted_count: int = 0
    """Of these, bounds that contradict the offset."""

    @property
    def is_known(self) -> bool:
        """Whether both sides are bounded; else the clocks are taken for the same."""
        return self.low_ns is not None and self.high_ns is not None


def clock_offset(samples: Table, connections: Table, segments: Table) -> Offset:
    """The offset of one file, from its rows of ``tcp_info``."""
    bounds = list(_bounds(samples, connections, segments))
    none = np.empty(0, dtype=np.int64)
    lows = np.sort(np.concatenate([none, *(low for low, _ in bounds)]))
    highs = np.sort(np.concatenate([none, *(high for _, high in bounds)]))
    if not len(lows) or not len(highs):
        return Offset(0, int(lows[-1]) if len(lows) else None, int(highs[0]) if len(highs) else None)
    # contradictions change at bounds only: an offset at a bound agrees with it
    places = np.unique(np.concatenate([lows, highs]))
    count = len(lows) - np.searchsorted(lows, places, side="right") + np.searchsorted(highs, places, side="left")
    least = int(count.min())
    best = places[count == least]
    low_ns, high_ns = int(best[0]), int(best[-1])
    is_zero = len(lows) - np.searchsorted(lows, 0, side="right") + np.searchsorted(highs, 0, side="left") == least
    return Offset(0 if is_zero else (low_ns + high_ns) // 2, low_ns, high_ns, len(lows) + len(highs), least)


def _bounds(samples: Table, connections: Table, segments: Table) -> Iterator[tuple[Array, Array]]:
    """Lower and upper bounds of each socket."""
    numbers = connections.raw("connection")
    has_syn = dict(zip(numbers.tolist(), connections.raw("has_syn").tolist(), strict=True))
    by_sender, packets = Partition(samples, sender_keys(samples)), Partition(segments, sender_keys(segments))
    for key in by_sender:
        if not has_syn.get(key >> 1, False):
            continue
        own = by_sender.rows(key)
        sent, received = _Passing(packets.rows(key)), _Passing(packets.rows(key ^ 1))
        times = own.raw("time_ns")
        got, acknowledged = _count(own, "bytes_received"), _count(own, "bytes_acked") - 1
        repeated = own["bytes_retransmitted"]
        put = _count(own, "bytes_sent") - np.where(np.ma.getmaskarray(repeated), 0, np.ma.getdata(repeated)).astype(
            np.int64
        )
        lows = np.concatenate([
            received.payload(got, times, is_beyond=False), received.acknowledgment(acknowledged, times, is_beyond=False)
        ])  # fmt: skip
        # a FIN counts as a byte where it is acknowledged, and not where it is received
        highs = np.concatenate([
            sent.payload(put, times, is_beyond=True), sent.acknowledgment(got + 1, times, is_beyond=True)
        ])  # fmt: skip
        yield lows, highs


def _count(samples: Table, name: str) -> Array:
    """A counter; -1 where it is unknown."""
    shown = samples[name]
    return np.where(np.ma.getmaskarray(shown), 0, np.ma.getdata(shown)).astype(np.int64) - np.ma.getmaskarray(shown)


class _Passing:
    """When the bytes of one direction, and its acknowledgments, passed the tap."""

    def __init__(self, packets: Table) -> None:
        self._times = packets.raw("time_ns")
        payload = packets.raw("payload_bytes").astype(np.int64)
        ends = np.where(payload > 0, packets.raw("stream_offset_bytes") + payload, 0)
        self._ends = np.maximum.accumulate(ends) if len(ends) else ends
        shown = packets["ack_offset_bytes"]
        acks = np.where(np.ma.getmaskarray(shown), 0, np.ma.getdata(shown))
        self._acks = np.maximum.accumulate(acks) if len(acks) else acks

    def payload(self, counts: Array, times: Array, *, is_beyond: bool) -> Array:
        """When more bytes than that had come, or just before that many had, less the time of the sample."""
        return self._passed(self._ends, counts, times, is_beyond=is_beyond)

    def acknowledgment(self, counts: Array, times: Array, *, is_beyond: bool) -> Array:
        """The same for acknowledged bytes."""
        return self._passed(self._acks, counts, times, is_beyond=is_beyond)

    def _passed(self, reached: Array, counts: Array, times: Array, *, is_beyond: bool) -> Array:
        is_known = counts >= 0 if is_beyond else counts > 0
        place = np.searchsorted(reached, counts[is_known], side="right" if is_beyond else "left")
        # the packet that brought the last of these bytes may be missing, but not the one before it
        place = place if is_beyond else place - 1
        is_there = (place >= 0) & (place < len(reached) - (not is_beyond))
        found: Array = self._times[place[is_there]] - times[is_known][is_there]
        return found


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
