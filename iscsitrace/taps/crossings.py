"""The packets of one connection at neighbouring taps: the same packet at both, lost between them, or seen at one alone.

Which packets have no counterpart, the join of the packets has decided (`network`). All others are paired here by bytes:
the first copy of a byte that passed the sender's tap with the first that passed the receiver's, and so on. Offload cuts
segments anew, so a packet may have several counterparts. ACKs that acknowledge the same are paired in order, too: where
one overtook the other, they change places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, Final

import numpy as np

from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Array, Table, null_value
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps.clock import Clock
from iscsitrace.taps.commands import Matched
from iscsitrace.taps.reading import TappedTables

NOT_SEEN: Final = null_value("int64")
"""The time of a packet at a tap that did not see it."""
_COPY, _AGAIN = (CATEGORIES["segment_class"].index(word) for word in ("copy", "retransmission"))
_COMMAND, _RESPONSE = 0x01, 0x21
_MOST_COPIES = 1 << 20
_MOST_BYTES = 1 << 38
"""More than a connection carries while its packets can be kept."""


@dataclass(frozen=True)
class Crossings:
    """Packets between tap A and tap B, on the clock of the first tap: one item for each pair of counterparts."""

    near_ns: Array
    """When it passed A, int64; NOT_SEEN."""
    far_ns: Array
    """When it passed B, int64; NOT_SEEN."""
    to_target: Array
    has_payload: Array
    is_again: Array
    """Whether it was a retransmission at the tap nearer to its sender."""
    is_lost: Array
    """Whether the network lost it between the taps; what only one capture has for another reason is not lost."""


@dataclass(frozen=True)
class PdusSeen:
    """The PDUs of one connection at a tap, on the clock of the first tap."""

    to_target: Array
    offset_bytes: Array
    """Stream offset as the first tap counts it, int64."""
    first_ns: Array
    last_ns: Array


@dataclass(frozen=True)
class Between:
    """One connection between all taps, from the initiator to the target."""

    names: tuple[str, ...]
    crossings: tuple[Crossings, ...]
    """Between each two neighbours."""
    pdus: tuple[PdusSeen, ...]
    """At each tap but the first."""
    last_rtts_ns: tuple[int | None, int | None]
    """Least RTTs from the last tap to the initiator and to the target."""


def of_connection(trace: TappedTables, connection: int) -> Between | None:
    """The packets of a connection of the first tap; None where a tap lacks it, or where no packets were joined.

    The trace has to be read with ``segments`` and ``pdus``.
    """
    first = trace.tap_list[0].trace
    scales, numbers, pdus = [_Scale()], [connection], []
    sides = [_Side.of(first.segments, connection, scales[0])]
    for place, tap in enumerate(trace.tap_list[1:], start=1):
        matched = trace.recognised(0, place).matched
        number = next((pair.at_b for pair in matched.connections if pair.at_a == connection), None)
        if number is None:
            return None
        scale = _Scale(trace.between(0, place).clock, _shifts(first, tap.trace, (connection, number), matched))
        numbers.append(number)
        scales.append(scale)
        sides.append(_Side.of(tap.trace.segments, number, scale))
        pdus.append(_pdus(tap.trace.pdus, number, scale))
    found = []
    for place, (near, far) in enumerate(pairwise(sides)):
        packets = trace.between(place, place + 1).packets
        if packets is None:
            return None
        own = packets.paths.raw("pair")[packets.paths.raw("connection_a") == numbers[place]]
        alone = packets.losses.select(np.isin(packets.losses.raw("pair"), own))
        found.append(_both(near, far, alone, scales[place].shifts))
    row = _row(trace.tap_list[-1].trace, numbers[-1])
    rtts_ns = row["rtt_to_initiator_min_ns"], row["rtt_to_target_min_ns"]
    return Between(tuple(tap.name for tap in trace.tap_list), tuple(found), tuple(pdus), rtts_ns)


def _row(trace: TraceTables, connection: int) -> dict[str, Any]:
    rows = trace.connections
    return rows.select(rows.raw("connection") == connection).row(0)


def _shifts(
    first: TraceTables, other: TraceTables, connections: tuple[int, int], matched: Matched
) -> Mapping[bool, int]:
    """By direction, what to add to a stream offset of the other tap to have that of the first.

    From the handshake on both count alike. Without it each counts from its first packet, and a PDU that both have shows
    the difference.
    """
    if all(_row(each, number)["has_syn"] for each, number in zip((first, other), connections, strict=True)):
        return {True: 0, False: 0}
    commands = dict(zip(matched.rows_b.tolist(), matched.rows_a.tolist(), strict=True))
    found = {}
    for to_target in (True, False):
        own, others = (
            _offsets(each.pdus, number, to_target) for each, number in zip((first, other), connections, strict=True)
        )
        apart = [own[commands[cycle]] - offset for cycle, offset in others.items() if commands.get(cycle) in own]
        found[to_target] = int(np.median(apart)) if apart else 0
    return found


def _offsets(pdus: Table, connection: int, to_target: bool) -> dict[int, int]:
    """Stream offset of the command, or of the status, of each command."""
    opcode = pdus.raw("opcode")
    is_wanted = opcode == _COMMAND if to_target else (opcode == _RESPONSE) | pdus.raw("has_status")
    is_wanted = is_wanted & (pdus.raw("connection") == connection) & known(pdus, "cycle")
    names = ("cycle", "stream_offset_bytes")
    return dict(zip(*(pdus.raw(name)[is_wanted].tolist() for name in names), strict=True))


def _pdus(pdus: Table, connection: int, scale: _Scale) -> PdusSeen:
    own = pdus.select((pdus.raw("connection") == connection) & known(pdus, "time_last_ns"))
    to_target = own.raw("to_target")
    first_ns, last_ns = (scale.times(own.raw(name)) for name in ("time_first_ns", "time_last_ns"))
    return PdusSeen(to_target, scale.offsets(own.raw("stream_offset_bytes"), to_target), first_ns, last_ns)


@dataclass(frozen=True)
class _Scale:
    """How a tap's times and offsets become those of the first tap."""

    clock: Clock | None = None
    """None for the first tap itself."""
    shifts: Mapping[bool, int] = field(default_factory=lambda: {True: 0, False: 0})

    def times(self, times_ns: Array) -> Array:
        return times_ns if self.clock is None else self.clock.on_a(times_ns)

    def offsets(self, offsets: Array, to_target: Array) -> Array:
        return np.asarray(offsets + np.where(to_target, self.shifts[True], self.shifts[False]))


@dataclass(frozen=True)
class _Side:
    """The packets of one connection at one tap, as the first tap stamps and counts them."""

    frame: Array
    time_ns: Array
    to_target: Array
    start_bytes: Array
    """Stream offset of the first byte."""
    end_bytes: Array
    acked_bytes: Array
    flags: Array
    is_again: Array

    @staticmethod
    def of(segments: Table, connection: int, scale: _Scale) -> _Side:
        """Without packets that the capture has twice."""
        is_own = (segments.raw("connection") == connection) & (segments.raw("segment_class") != _COPY)
        own = segments.select(is_own)
        to_target = own.raw("to_target")
        start = scale.offsets(own.raw("stream_offset_bytes"), to_target)
        is_ack = known(own, "ack_offset_bytes")
        return _Side(
            own.raw("frame").astype(np.int64),
            scale.times(own.raw("time_ns")),
            to_target,
            start,
            start + own.raw("payload_bytes").astype(np.int64),
            np.where(is_ack, scale.offsets(own.raw("ack_offset_bytes"), ~to_target), NOT_SEEN),
            own.raw("flags"),
            own.raw("segment_class") == _AGAIN,
        )

    def select(self, which: Array) -> _Side:
        """The packets that a mask picks."""
        return _Side(*(getattr(self, each.name)[which] for each in fields(self)))

    @property
    def has_payload(self) -> Array:
        return np.asarray(self.end_bytes > self.start_bytes)


def _both(near: _Side, far: _Side, alone: Table, shifts: Mapping[bool, int]) -> Crossings:
    """Both directions together, in order of time; ``alone`` are the packets that one of the two taps has alone.

    Their offsets are those that the nearer tap counts; ``shifts`` make them those of the first tap.
    """
    parts = []
    for to_target in (True, False):
        sides = [each.select(each.to_target == to_target) for each in (near, far)]
        of_way = alone.select(alone.raw("to_target") == to_target)
        at_near, at_far = (of_way.select(of_way.raw("is_seen_at_a") == is_near) for is_near in (True, False))
        rows = _paired(sides[0], sides[1], *(_ranges(each, shifts[to_target]) for each in (at_near, at_far)))
        sender, at_sender = (sides[0], at_near) if to_target else (sides[1], at_far)
        lost = at_sender.raw("frame")[at_sender["verdict"] == "lost_in_network"]
        parts.append(_crossings(sides, rows, np.isin(sender.frame, lost), to_target=to_target))
    columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
    seen = np.where(columns[0] == NOT_SEEN, columns[1], columns[0])
    order = np.argsort(seen, kind="stable")
    return Crossings(*(each[order] for each in columns))


def _crossings(sides: list[_Side], rows: list[Array], lost: Array, *, to_target: bool) -> list[Array]:
    """The columns of Crossings for the rows of both taps that are paired; -1 for none."""
    times = [
        np.where(row >= 0, np.append(side.time_ns, 0)[row], NOT_SEEN) for side, row in zip(sides, rows, strict=True)
    ]
    # the sender's tap, and the other one where that did not see it
    order = (0, 1) if to_target else (1, 0)
    at_sender, at_receiver = (rows[place] for place in order)
    looks = [
        np.where(at_sender >= 0, *(np.append(getattr(sides[place], name), False)[rows[place]] for place in order))
        for name in ("has_payload", "is_again")
    ]
    is_lost = (at_sender >= 0) & (at_receiver < 0) & np.append(lost, False)[at_sender]
    return [*times, np.full(len(is_lost), to_target), *looks, is_lost]


def _ranges(alone: Table, shift: int) -> Array:
    """Frame, first and last offset of what only one tap has, int64, shape (rows, 3)."""
    frames, *offsets = (
        alone.raw(name).astype(np.int64) for name in ("frame", "first_offset_bytes", "last_offset_bytes")
    )
    return np.stack([frames, *(each + shift for each in offsets)], axis=1)


def _paired(near: _Side, far: _Side, near_alone: Array, far_alone: Array) -> list[Array]:
    """Row of each tap for each pair of counterparts, and for what has none; -1 there."""
    edges = np.unique(np.concatenate([near.start_bytes, near.end_bytes, far.start_bytes, far.end_bytes]))
    marks = [np.stack([each.start_bytes, each.acked_bytes, each.flags], axis=1) for each in (near, far)]
    kinds = np.unique(np.concatenate(marks), axis=0, return_inverse=True)[1].reshape(-1)
    pieces = []
    for side, alone, kind in ((near, near_alone, kinds[: len(near.frame)]), (far, far_alone, kinds[len(near.frame) :])):
        pieces.append(_ranked(*_pieces(side, alone, kind, edges), side.time_ns))
    (keys, rows), (other_keys, other_rows) = pieces
    _, one, another = np.intersect1d(keys, other_keys, return_indices=True)
    both = np.unique(np.stack([rows[one], other_rows[another]], axis=1), axis=0)
    only = [np.setdiff1d(np.arange(len(side.frame)), both[:, place]) for place, side in enumerate((near, far))]
    return [
        np.concatenate([both[:, 0], only[0], np.full(len(only[1]), -1)]),
        np.concatenate([both[:, 1], np.full(len(only[0]), -1), only[1]]),
    ]


def _pieces(side: _Side, alone: Array, kind: Array, edges: Array) -> tuple[Array, Array]:
    """Number of each piece of a packet, and its row, without what only this tap has.

    A packet without payload is one piece, with a negative number for its kind.
    """
    first, last = (np.searchsorted(edges, each) for each in (side.start_bytes, side.end_bytes))
    counts = last - first
    rows = np.repeat(np.arange(len(counts)), counts)
    pieces = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + first[rows]
    is_there = np.isin(side.frame, alone[:, 0])
    at = edges[pieces]
    frames, lows, highs = alone[np.lexsort([alone[:, 1], alone[:, 0]])].T
    place = np.searchsorted(frames * _MOST_BYTES + lows, side.frame[rows] * _MOST_BYTES + at, side="right") - 1
    is_alone = (np.append(frames, -1)[place] == side.frame[rows]) & (at < np.append(highs, 0)[place])
    empty = np.flatnonzero((counts == 0) & ~is_there)
    return np.concatenate([pieces[~is_alone], -1 - kind[empty]]), np.concatenate([rows[~is_alone], empty])


def _ranked(pieces: Array, rows: Array, times_ns: Array) -> tuple[Array, Array]:
    """A key for each piece and which of its copies it is, in order of time; and its row."""
    order = np.lexsort([times_ns[rows], pieces])
    pieces, rows = pieces[order], rows[order]
    starts = np.flatnonzero(np.diff(pieces, prepend=pieces[:1] - 1))
    rank = np.arange(len(pieces)) - np.repeat(starts, np.diff(np.append(starts, len(pieces))))
    return pieces * _MOST_COPIES + np.minimum(rank, _MOST_COPIES - 1), rows
