"""Each direction of a connection as the tap nearest to its sender has it: windows, retransmissions, and their counts.

Beside its sender a tap sees every packet when it was sent, and every ACK when it took effect: windows and
retransmissions are exact there. So the rows of data to the target are those of the first tap, and the rows of data to
the initiator those of the last one, on the clock of the first and with its numbers of connections.

It never estimates, and never adds up rows of two taps: what the last tap cannot show better stays with the first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from iscsitrace.measure.budget import PARTS
from iscsitrace.tables.nulls import known, numbers_of
from iscsitrace.tables.numbers import Partition, grouped
from iscsitrace.tables.table import Array, Source, Table, null_value
from iscsitrace.taps.clock import Clock
from iscsitrace.taps.commands import Matched
from iscsitrace.taps.network import Network

_INSTANTS: Final = (
    *("time_ns", "time_first_ns", "time_last_ns", "original_ns", "black_out_first_ns", "black_out_last_ns"),
)


class OnFirst:
    """Tables with a column ``connection``, without the connections that the first tap lacks; called by name."""

    def __init__(self, source: Source, matched: Matched, clock: Clock) -> None:
        """``matched`` are the commands of the first tap (A) and of this one (B), ``clock`` is that of B less A."""
        self._source = source
        self._matched = matched
        self._clock = clock
        self._tables: dict[str, Table] = {}

    def __call__(self, name: str) -> Table:
        """The table with this name; each is made once."""
        if name not in self._tables:
            self._tables[name] = self._made(self._source(name))
        return self._tables[name]

    def _made(self, whole: Table) -> Table:
        pairs = {pair.at_b: pair.at_a for pair in self._matched.connections}
        at_first = _looked_up(pairs, whole.raw("connection"))
        rows = whole.select(at_first >= 0)
        columns: dict[str, Array] = {"connection": at_first[at_first >= 0].astype(np.uint32)}
        masks = {name: mask for name in rows if (mask := rows.mask(name)) is not None}
        for name in rows:
            if name in _INSTANTS:
                times = self._clock.on_a(rows.raw(name))
                columns[name] = np.where(known(rows, name), times, rows.raw(name))
            elif "frame" in name.split("_"):
                columns[name] = np.full(len(rows), null_value(rows.column(name).dtype), rows.raw(name).dtype)
                masks[name] = np.ones(len(rows), dtype=bool)
            elif name == "cycle":
                commands = dict(zip(self._matched.rows_b.tolist(), self._matched.rows_a.tolist(), strict=True))
                numbers = _looked_up(commands, rows.raw(name))
                masks[name] = numbers < 0
                columns[name] = np.where(numbers < 0, null_value("uint32"), numbers).astype(np.uint32)
        return rows.like({name: columns.get(name, rows.raw(name)) for name in rows}, masks)


def _looked_up(numbers: Mapping[int, int], values: Array) -> Array:
    """What each value stands for, int64; -1 for those that stand for nothing."""
    keys = np.array(sorted(numbers), dtype=np.int64)
    found = np.array([*(numbers[key] for key in keys.tolist()), -1], dtype=np.int64)
    place = np.searchsorted(keys, values.astype(np.int64))
    is_there = np.append(keys, -1)[place] == values
    return np.where(is_there, found[place], -1)


ROWS: Final = ("window", "retransmissions", "recoveries", "flights", "tcp_info")
"""Tables with rows of one direction each, in order of time: those of the sender's tap, where it captured."""
_FRAMES: Final = {"retransmissions": ("frame", "original_frame"), "recoveries": ("frame_first", "frame_last")}
"""Columns that name frames of the first tap's capture, where that has the same packets."""
TABLES: Final = (*ROWS, "senders", "connections", "budget")

_FAR_NS: Final = 1 << 62
"""Later than any time of a capture."""
_COUNTED: Final = (
    *("window_scale", "is_window_scale_inferred", "owin_max_bytes", "sndbuf_level_bytes"),
    *("rwnd_min_bytes", "rwnd_max_bytes"),
    *("window_full_ns", "zero_window_ns", "rwnd_limited_ns", "cwnd_limited_ns", "sndbuf_limited_ns"),
    *("kernel_busy_ns", "kernel_retransmitted_segments", "congestion_control"),
    *("fast_retransmit_count", "timeout_count", "tail_probe_count", "unknown_retransmit_count", "spurious_count"),
    *("recovery_count", "recovery_ns", "ssthresh_guess_bytes", "restart_after_idle_count"),
)
"""Columns of ``senders`` that the sender's tap knows. RTTs stay those of the first tap, because those of both
directions add up to the path's; so do rates of lines, and what names a frame."""


@dataclass(frozen=True)
class Taken:
    """The connections whose data to the initiator are as the last tap has them, on the clock of the first."""

    connections: Array
    """Their numbers, ascending, int64."""
    from_ns: Array
    """When the last tap begins to show them, int64; long ago where it shows them as long as the first does."""
    to_ns: Array
    """When it ends; likewise."""
    is_whole: Array
    """Whether it shows them as long as the first tap does."""
    has_syn: Array
    """Whether both show the handshake, so that both count bytes from the same one."""
    margin_ns: int
    """The greatest delays between the taps, in both directions together."""

    def place_of(self, connections: Array) -> Array:
        """Place of each connection; -1 for those that are not among them."""
        place = np.searchsorted(self.connections, connections)
        found = np.append(self.connections, -1)[place] == connections
        return np.where(found, place, -1)


_RESENT: Final = tuple(f"retransmitted_{what}_to_initiator" for what in ("packets", "bytes", "syns", "fins"))
"""Columns of ``connections`` that the tap of the target knows."""


class Senders:
    """The tables of several taps, each direction from the tap nearest to its sender."""

    def __init__(self, first: Source, last: OnFirst, network: Network) -> None:
        """``first`` is the initiator's tap, ``last`` the target's; ``network`` lies between them."""
        self._first = first
        self.last = last
        self._network = network
        self.taken = _taken(first, last, network)

    def has(self, connection: int) -> bool:
        """Whether the last tap has what the target sent on a connection."""
        return connection in self.taken.connections

    def table(self, name: str) -> Table:
        """One of TABLES."""
        own = self._first(name)
        if not len(self.taken.connections):
            return own
        if name == "budget":
            return budget(own, self.last(name), self._first("cycles"), self.taken.connections, self._back)
        if name == "senders":
            return self._counted(own, ~own.raw("to_target"), ~self.last(name).raw("to_target"), _COUNTED)
        if name == "connections":
            is_own, is_other = (np.ones(len(each), dtype=bool) for each in (own, self.last(name)))
            return self._counted(own, is_own, is_other, _RESENT)
        return self._rows(own, self.last(name))

    def _back(self, times_ns: Array) -> Array:
        """When what the target's host sent at these times reached the first tap: as long after as the next packet.

        A wait ends with the packet that was sent next: whatever a queue did to those before, the first tap sees its end
        when this one arrives.
        """
        delays = self._network.to_initiator
        if not len(delays.time_ns):
            return times_ns
        order = np.argsort(delays.time_ns, kind="stable")
        place = np.searchsorted(delays.time_ns[order], times_ns)
        return np.asarray(times_ns + delays.delay_ns[order][place.clip(max=len(order) - 1)])

    def _rows(self, own: Table, other: Table) -> Table:
        taken = self.taken
        times = next(name for name in ("time_ns", "time_first_ns") if name in own)
        other = other.select(~other.raw("to_target") & (taken.place_of(other.raw("connection")) >= 0))
        place = taken.place_of(own.raw("connection"))
        is_there = (place >= 0) & ~own.raw("to_target")
        if own.name == "tcp_info":
            # the host itself sampled it, wherever the samples were captured
            is_there &= np.isin(own.raw("connection"), other.raw("connection"))
        else:
            is_there &= (own.raw(times) >= taken.from_ns[place]) & (own.raw(times) <= taken.to_ns[place])
        kept = own.select(~is_there)
        keys = [each.raw("connection").astype(np.int64) * 2 + each.raw("to_target") for each in (kept, other)]
        order = np.lexsort([np.concatenate([kept.raw(times), other.raw(times)]), np.concatenate(keys)])
        columns = {name: np.concatenate([kept.raw(name), other.raw(name)])[order] for name in own}
        masks = {name: ~np.concatenate([known(kept, name), known(other, name)])[order] for name in own}
        if own.name in _FRAMES:
            # what the first tap has, too, has its frame there
            at_first = _same(own.select(is_there), other, taken.margin_ns)
            at_first[~taken.has_syn[taken.place_of(other.raw("connection"))]] = -1
            for name in _FRAMES[own.name]:
                frames = np.append(own.raw(name)[is_there], null_value("uint64"))[at_first]
                columns[name] = np.concatenate([kept.raw(name), frames])[order]
                masks[name] = columns[name] == null_value("uint64")
        return own.like(columns, masks)

    def _counted(self, own: Table, is_own: Array, is_other: Array, names: tuple[str, ...]) -> Table:
        """Counts of the last tap in place of those of the first, where it has all of a connection.

        ``is_own`` and ``is_other`` are the rows of both that have them, one for each connection.
        """
        other = self.last(own.name).select(is_other)
        rows = {number: row for row, number in enumerate(other.raw("connection").tolist())}
        place = self.taken.place_of(own.raw("connection"))
        is_counted = (place >= 0) & is_own & np.append(self.taken.is_whole, False)[place]
        is_counted &= np.isin(own.raw("connection"), list(rows))
        at = [rows[number] for number in own.raw("connection")[is_counted].tolist()]
        columns = {name: np.array(own.raw(name)) for name in own}
        for name in names:
            columns[name][is_counted] = other.raw(name)[at]
        return own.like(columns)


def _same(own: Table, other: Table, margin_ns: int) -> Array:
    """The row of the first tap for each of the last tap's rows; -1 where none is the same.

    A retransmission has the same bytes, and passes the first tap later by a delay; a recovery that is the same ends at
    one tap after it began at the other.
    """
    spans: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for place, (key, begin_ns, end_ns) in enumerate(_spans(own)):
        spans.setdefault(key, []).append((end_ns, begin_ns, place))
    found = []
    for key, begin_ns, end_ns in _spans(other):
        those = spans.get(key, [])
        next_one = bisect_left(those, (begin_ns,))
        is_same = next_one < len(those) and those[next_one][1] <= min(end_ns, _FAR_NS) + margin_ns
        found.append(those[next_one][2] if is_same else -1)
    return np.array(found, dtype=np.intp)


def _spans(table: Table) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Key, begin and end of each row; those of a key are in order of time."""
    names = ("stream_offset_bytes", "time_ns", "time_ns")
    if names[0] not in table:
        names = ("to_target", "time_first_ns", "time_last_ns")
    ends = np.where(known(table, names[2]), table.raw(names[2]), _FAR_NS)
    columns = (table.raw(name).tolist() for name in ("connection", *names[:2]))
    for connection, mark, begin_ns, end_ns in zip(*columns, ends.tolist(), strict=True):
        yield (connection, mark), begin_ns, end_ns


def _taken(first: Source, last: OnFirst, network: Network) -> Taken:
    """Those of which the last capture has the bytes, and lacks no more packets than the first.

    Behind a proxy that terminates TCP the target sends other segments, and nothing joins.
    """
    out, back = network.to_target.quantile_ns(1.0), network.to_initiator.quantile_ns(1.0)
    margin_ns = max(0, out or 0) + max(0, back or 0)
    own = {row["connection"]: row for row in first("connections").rows(_CONNECTION)}
    other = {row["connection"]: row for row in last("connections").rows(_CONNECTION)}
    missing: dict[int, int] = {}
    joined: set[int] = set()
    for row in network.packets.paths.rows() if network.packets else ():
        number = row["connection_a"]
        missing[number] = missing.get(number, 0) + row["missing_at_b"] - row["missing_at_a"]
        if row["matched"] and not row["to_target"]:
            joined.add(number)
    found = []
    for number in sorted(joined & own.keys() & other.keys()):
        one, another = own[number], other[number]
        # without the handshake the scale of the windows is inferred
        if missing[number] <= 0 and (another["has_syn"] or not one["has_syn"]):
            from_ns, to_ns = another["time_first_ns"], another["time_last_ns"]
            # what was under way where the first tap began and ended is no difference
            is_whole = from_ns <= one["time_first_ns"] + margin_ns and one["time_last_ns"] <= to_ns + margin_ns
            from_ns, to_ns = (-_FAR_NS, _FAR_NS) if is_whole else (from_ns, to_ns)
            found.append((number, from_ns, to_ns, is_whole, one["has_syn"] and another["has_syn"]))
    numbers, from_ns, to_ns, is_whole, has_syn = np.array(found, dtype=np.int64).reshape(-1, 5).T
    return Taken(numbers, from_ns, to_ns, is_whole.astype(bool), has_syn.astype(bool), margin_ns)


_CONNECTION: Final = ("connection", "has_syn", "time_first_ns", "time_last_ns")


_LIMITS: Final = ("receive_window", "congestion_window", "send_buffer", "ack_wait", "loss_recovery")
"""What stops the TCP of a sender."""
_UNSURE: Final = ("congestion_window", "send_buffer", "ack_wait", "loss_recovery", "unknown")
"""Parts of the first tap that the other may know better."""
_IN_WRITES: Final = {
    ("target_service", "propagation"): "propagation",
    ("target_service", "initiator_think"): "propagation",
}
"""By part of the first tap and part of the other: the part of an instant. Only the target's tap sees when a command is
there, and when it is answered.
"""
_IN_READS: Final = {
    **_IN_WRITES,
    **{(own, limit): limit for own in (*_UNSURE, "target_service") for limit in _LIMITS},
    ("loss_recovery", "target_service"): "target_service",
}


def budget(
    own: Table, other: Table, cycles: Table, connections: Array, passed: Callable[[Array], Array]
) -> Table:  # fmt: skip
    """The table ``budget`` of the first tap, with the waits for the target's host as ``other`` has them.

    ``other`` is that of the target's tap, with the numbers and the clock of the first. ``connections`` are those that
    it knows better; ``passed`` has the time at which the first tap sees what the target sent at a time.
    """
    cycle = numbers_of(own, "cycle")
    is_read = (cycle >= 0) & ~_at(cycles.raw("is_write"), cycle)
    connection = np.where(cycle >= 0, _at(cycles.raw("connection"), cycle).astype(np.int64), -1)
    is_known = (cycle >= 0) & np.isin(connection, connections)
    cuts: list[tuple[Array, Array, Array, Array]] = []
    for is_way, known_better in ((is_read, _IN_READS), (~is_read, _IN_WRITES)):
        is_movable = is_known & is_way & np.isin(own.raw("part"), _codes(tuple(own for own, _ in known_better)))
        parts = _codes(tuple(other for _, other in known_better))
        is_better = np.isin(other.raw("part"), parts)
        limits = Partition(other, np.where(is_better, numbers_of(other, "connection"), -1))
        movable = np.flatnonzero(is_movable)
        has_connection = known(own, "connection")
        for number, places in grouped(connection[movable]).items():
            better, moved = limits.rows(number), movable[places]
            # the session's time, and that of one of its connections, are apart
            for is_own in (True, False):
                rows = moved[has_connection[moved] == is_own]
                if len(rows) and len(better):
                    cuts.append(_cut(own, rows, better, passed, _lookup(known_better)))
    return _replaced(own, cuts) if cuts else own


def _lookup(known_better: Mapping[tuple[str, str], str]) -> Array:
    """By code of a part of the first tap and of the other: the code of the part, shape (PARTS, PARTS)."""
    found = np.repeat(np.arange(len(PARTS))[:, None], len(PARTS), axis=1)
    for (own, other), part in known_better.items():
        found[PARTS.index(own), PARTS.index(other)] = PARTS.index(part)
    return found


def _cut(
    own: Table, rows: Array, limits: Table, passed: Callable[[Array], Array], lookup: Array
) -> tuple[Array, Array, Array, Array]:
    """Row, start, end and part of each piece of these rows, which are disjoint; in order of time."""
    starts, ends = own.raw("time_first_ns")[rows], own.raw("time_last_ns")[rows]
    order = np.argsort(starts, kind="stable")
    rows, starts, ends = rows[order], starts[order], ends[order]
    by_time = np.argsort(limits.raw("time_first_ns"), kind="stable")
    # of a delay that falls, what was sent later may arrive no later
    others = np.stack([limits.raw(name)[by_time] for name in ("time_first_ns", "time_last_ns")], axis=1)
    others = np.maximum.accumulate(passed(others.reshape(-1))).reshape(-1, 2)
    edges = np.unique(np.concatenate([starts, ends, others.reshape(-1)]))
    low, high = edges[:-1], edges[1:]
    row = np.searchsorted(starts, low, side="right") - 1
    is_inside = (row >= 0) & (low < ends[row])
    low, high, row = low[is_inside], high[is_inside], row[is_inside]
    place = np.searchsorted(others[:, 0], low, side="right") - 1
    is_shown = (place >= 0) & (low < others[place, 1])
    codes = own.raw("part")[rows[row]]
    codes = np.where(is_shown, lookup[codes, limits.raw("part")[by_time][place]], codes)
    # pieces of one row and part are one
    is_new = np.append(True, (np.diff(row) != 0) | (np.diff(codes.astype(np.int64)) != 0))
    is_last = np.append(is_new[1:], True)
    return rows[row[is_new]], low[is_new], high[is_last], codes[is_new]


def _replaced(own: Table, cuts: list[tuple[Array, Array, Array, Array]]) -> Table:
    """The table with the pieces in the places of their rows."""
    row, low, high, code = (np.concatenate(each) for each in zip(*cuts, strict=True))
    order = np.lexsort([low, row])
    row, low, high, code = row[order], low[order], high[order], code[order]
    counts = np.ones(len(own), dtype=np.intp)
    counts[np.unique(row)] = np.bincount(row, minlength=len(own))[np.unique(row)]
    source = np.repeat(np.arange(len(own)), counts)
    columns = {name: own.raw(name)[source] for name in own}
    is_piece = np.isin(source, row)
    for name, values in (("time_first_ns", low), ("time_last_ns", high), ("part", code)):
        columns[name][is_piece] = values
    masks = {name: mask[source] for name in own if (mask := own.mask(name)) is not None}
    # the part decides whether a row of a category is null
    masks.pop("part", None)
    return own.like(columns, masks)


def _codes(parts: tuple[str, ...]) -> list[int]:
    return [PARTS.index(part) for part in parts]


def _at(values: Array, places: Array) -> Array:
    """The values in these places; of a negative place that of the first."""
    if not len(values):
        return np.zeros(len(places), dtype=values.dtype)
    return np.asarray(values[places.clip(0)])
