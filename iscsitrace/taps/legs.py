"""The legs of each command: how long each host and each direction of the network took (method 11).

The way back from the status: the target sent it after the last byte that it waited for; that byte left the initiator's
tap earlier; the initiator sent it for an R2T, or with the command. Each instant at the target's tap ends one leg and
begins the next, so the four sums add up to the latency at the initiator's tap, to the nanosecond.

It never estimates: a command has legs if every instant of this way was captured at both taps. What TCP held is from the
time breakdown at the tap of each sender.

Of commands whose instants a capture shows wrongly, because it lacks packets, nothing is said. A packet that a capture
lacks is no harm where the network delivered it and its bytes were sent once. Where the network lost a copy of these
bytes, an instant may be that of another copy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Final

import numpy as np

from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.intervals import covered_until
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import Partition, first_rows, grouped, order_of
from iscsitrace.tables.table import Array, Source, Table
from iscsitrace.taps.clock import TOLERANCE_NS, Clock
from iscsitrace.taps.commands import Matched
from iscsitrace.taps.network import Network, Packets

_AGAIN = "has_retransmission"


def has_unsure_copies(near: Source, far: Source, matched: Matched, packets: Packets | None) -> Array:
    """Whether bytes of a command were sent more than once, and the tap beyond lacks a copy that was not lost, bool.

    Which copy arrived, and when, that tap cannot show. Without ``packets`` it is so for each command of which one
    capture lacks bytes and the other has retransmissions.
    """
    tables = (near("cycles"), matched.rows_a), (far("cycles"), matched.rows_b)
    if packets is None or packets.losses_not_listed:
        gap, again = ([table.raw(name)[rows] for table, rows in tables] for name in ("has_capture_gap", _AGAIN))
        return np.asarray(gap[0] & again[1] | gap[1] & again[0])
    found = np.zeros(len(matched), dtype=bool)
    for source, (cycles, rows), is_at_a in zip((near, far), tables, (True, False), strict=True):
        alone = packets.alone(is_at_a=is_at_a)
        sent = source("retransmissions")
        sent = sent.select(sent.raw("to_target") == is_at_a)
        frames = alone.raw("frame").astype(np.int64)
        copies = np.union1d(sent.raw("frame"), sent.raw("original_frame")).astype(np.int64)
        is_copy = np.isin(frames, copies) | alone.raw("is_overtaken")
        connections = packets.connections(alone, is_at_a=is_at_a)[is_copy]
        times = _first_sent(sent, frames, alone.raw("time_ns").astype(np.int64))[is_copy]
        found |= _had(cycles, rows, connections, times)
    return found


def _first_sent(again: Table, frames: Array, times_ns: Array) -> Array:
    """When the bytes of these packets first passed the tap of their sender, int64."""
    has_original = known(again, "original_ns")
    of_frame = again.raw("frame")[has_original].astype(np.int64)
    order = np.argsort(of_frame, kind="stable")
    place = np.searchsorted(of_frame[order], frames)
    is_again = (place < len(order)) & np.isin(frames, of_frame)
    first = times_ns.copy()
    first[is_again] = again.raw("original_ns")[has_original][order][place[is_again]]
    return first


def _had(cycles: Table, rows: Array, connections: Array, times_ns: Array) -> Array:
    """Whether any of these packets passed the tap between the command and its status, on its connection, bool."""
    found = np.zeros(len(rows), dtype=bool)
    issued = grouped(cycles.raw("connection")[rows])
    for connection, own in grouped(connections).items():
        times, here = np.sort(times_ns[own]), issued.get(connection, own[:0])
        first = np.searchsorted(times, cycles.raw("command_first_ns")[rows[here]].astype(np.int64), side="left")
        last = np.searchsorted(times, cycles.raw("status_ns")[rows[here]].astype(np.int64), side="right")
        found[here] = last > first
    return found


@dataclass(frozen=True)
class Repaired:
    """Retransmissions whose original the tap of their sender does not show, in a capture that lacks packets.

    Nobody knows when the original left. Where the capture lacks nothing, the original was lost before the tap: then
    there are none. Some are no retransmissions for sure: their bytes may have been in packets that neither tap saw.
    """

    connections: Array
    times_ns: Array

    @classmethod
    def of(cls, retransmissions: Table, network: Network, *, to_target: bool) -> Repaired:
        """Of the table of the tap that is nearer to the sender of this direction."""
        # where only commands were compared, nobody knows whether a capture lacks packets
        lacks_packets = network.count("missing_at_a" if to_target else "missing_at_b") != 0
        none = np.empty(0, dtype=np.int64)
        doubtful = network.packets.doubtful(is_at_a=to_target) if network.packets else (none, none)
        which = (retransmissions.raw("to_target") == to_target) & ~known(retransmissions, "original_frame")
        rows = np.flatnonzero(which & lacks_packets)
        return cls(
            np.append(retransmissions.raw("connection")[rows].astype(np.int64), doubtful[0]),
            np.append(retransmissions.raw("time_ns")[rows].astype(np.int64), doubtful[1]),
        )

    def has(self, connections: Array, times_ns: Array) -> Array:
        """Whether the packet of this time on this connection is one of them, bool."""
        found = np.zeros(len(times_ns), dtype=bool)
        candidates = np.flatnonzero(np.isin(times_ns, self.times_ns))
        pairs = set(zip(self.connections.tolist(), self.times_ns.tolist(), strict=True))
        for place in candidates.tolist():
            found[place] = (int(connections[place]), int(times_ns[place])) in pairs
        return found


@dataclass(frozen=True)
class Legs:
    """Legs of the commands that have them, int64, one item per command."""

    rows: Array
    """Rows in ``cycles`` of the initiator's tap."""
    initiator_ns: Array
    """In the initiator's host, up to its tap: sending the command, and data after an R2T."""
    to_target_ns: Array
    """On the network to the target, recovery of losses included."""
    target_ns: Array
    """In the target, behind its tap: from the last byte that it waited for to R2T or status."""
    to_initiator_ns: Array
    """On the network to the initiator."""
    initiator_held_ns: Array
    """Of the initiator's time, what its TCP explains: sending, and waits for ACKs, windows or retransmissions."""
    target_held_ns: Array
    """The same of the target's time."""

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, which: Array) -> Legs:
        """The legs of the commands that a mask or row numbers pick."""
        return Legs(*(getattr(self, each.name)[which] for each in fields(self)))

    @property
    def latency_ns(self) -> Array:
        """The latency at the initiator's tap, int64."""
        return np.asarray(self.initiator_ns + self.to_target_ns + self.target_ns + self.to_initiator_ns)

    @property
    def network_ns(self) -> Array:
        """What the network took: both ways, and the waits of TCP in both hosts."""
        return np.asarray(self.to_target_ns + self.to_initiator_ns + self.initiator_held_ns + self.target_held_ns)


@dataclass(frozen=True)
class _Instants:
    """Instants of the same events at both taps, on the clock of the initiator's tap."""

    near: Array
    far: Array
    near_held: Array
    """Time of the connection until then in which the initiator's TCP held data."""
    far_held: Array
    """The same of the target's TCP, seen at its tap."""
    is_known: Array

    def select(self, which: Array) -> _Instants:
        """The instants that row numbers pick."""
        return _Instants(*(getattr(self, each.name)[which] for each in fields(self)))

    def latest(self, other: _Instants, which: Array) -> _Instants:
        """The later instants of both, where a boolean mask has them."""
        near, far = which & (other.near > self.near), which & (other.far > self.far)
        return _Instants(
            np.where(near, other.near, self.near),
            np.where(far, other.far, self.far),
            np.where(near, other.near_held, self.near_held),
            np.where(far, other.far_held, self.far_held),
            self.is_known,
        )


def of_commands(near: Source, far: Source, whole: Matched, network: Network) -> Legs:
    """The legs of commands that are complete at both taps: ``near`` is the initiator's tap, ``far`` the target's.

    ``network`` is what lies between them.
    """
    clock = network.clock
    cycles = near("cycles"), far("cycles")
    rows = whole.rows_a, whole.rows_b
    held = Held(near("budget")), Held(far("budget"))
    first_held = held[0].until(cycles[0].raw("connection")[rows[0]], cycles[0].raw("command_first_ns")[rows[0]])
    repaired = (
        Repaired.of(near("retransmissions"), network, to_target=True),
        Repaired.of(far("retransmissions"), network, to_target=False),
    )
    reader = _Reader(held, clock, repaired)
    connections = cycles[0].raw("connection")[rows[0]], cycles[1].raw("connection")[rows[1]]
    command, data, unsolicited, status = (
        reader.read(cycles, rows, name, connections)
        for name in ("command_last_ns", "data_last_ns", "unsolicited_last_ns", "status_ns")
    )
    rounds = _Rounds.of(near, far, rows, connections, reader)
    # without R2T all data came unsolicited, also that of PDUs whose headers a snaplen cut
    is_alone = cycles[0].raw("is_write")[rows[0]] & data.is_known & (rounds.count == 0)
    unsolicited = _put(unsolicited, np.flatnonzero(is_alone), data.select(np.flatnonzero(is_alone)))
    has_both = (cycles[0].raw("unsolicited_bytes")[rows[0]] > 0) & (rounds.count > 0)
    walked = _Walk(cycles[0].raw("command_first_ns")[rows[0]].astype(np.int64), first_held)
    walked.back(_Request(command, unsolicited, is_alone | has_both), status, rounds)
    is_good = command.is_known & status.is_known & rounds.is_known
    is_good &= ~has_both | (unsolicited.is_known & _is_every_part_known(*cycles, *rows))
    is_good &= walked.target >= -TOLERANCE_NS
    is_good &= ~repaired[0].has(connections[0], cycles[0].raw("command_first_ns")[rows[0]])
    is_good &= ~has_unsure_copies(near, far, whole, network.packets)
    # no way is shorter than nothing: else a capture lacks the packet that came first
    is_good &= walked.least_hop >= -(TOLERANCE_NS + (clock.high_ns - clock.low_ns) // 2)
    for from_ns, to_ns in clock.unsure:
        # nothing is sure about a command in whose time a clock was set
        is_good &= (status.near <= from_ns) | (command.near >= to_ns)
    return Legs(
        rows[0],
        *(walked.initiator, walked.to_target, walked.target, walked.to_initiator),
        *(walked.initiator_held, walked.target_held),
    ).where(is_good)


def _is_every_part_known(near: Table, far: Table, rows_near: Array, rows_far: Array) -> Array:
    """Whether both taps show of all data of each write whether an R2T asked for it, bool."""
    is_known = np.ones(len(rows_near), dtype=bool)
    for cycles, rows in ((near, rows_near), (far, rows_far)):
        parts = (cycles.raw(name)[rows].astype(np.int64) for name in ("immediate_bytes", "unsolicited_bytes"))
        is_known &= sum(parts) + cycles.raw("solicited_bytes")[rows] == cycles.raw("data_bytes")[rows]
    return is_known


@dataclass(frozen=True)
class _Request:
    """What a host sends without being asked: the command, and its unsolicited data."""

    command: _Instants
    unsolicited: _Instants
    has_unsolicited: Array
    """Per command whether there is any."""

    def before(self, answer: _Instants) -> _Instants:
        """What came of it before an answer: for data that came later the target did not wait."""
        came = self.has_unsolicited & (self.unsolicited.far <= answer.far)
        return self.command.latest(self.unsolicited, came)


@dataclass(frozen=True)
class _Reader:
    """Reads the instants of a column at both taps, on the clock of the first."""

    held: tuple[Held, Held]
    clock: Clock
    repaired: tuple[Repaired, Repaired]

    def read(
        self, tables: tuple[Table, Table], rows: tuple[Array, Array], name: str, connections: tuple[Array, Array]
    ) -> _Instants:
        """The instants in these rows, which belong to commands on these connections."""
        is_known = known(tables[0], name)[rows[0]] & known(tables[1], name)[rows[1]]
        near, far = (
            np.where(is_known, table.raw(name)[row], 0).astype(np.int64)
            for table, row in zip(tables, rows, strict=True)
        )
        near_held, far_held = (
            held.until(connection, times)
            for held, connection, times in zip(self.held, connections, (near, far), strict=True)
        )
        is_sure = ~self.repaired[0].has(connections[0], near) & ~self.repaired[1].has(connections[1], far)
        return _Instants(near, self.clock.to_a(far, near), near_held, far_held, is_known & is_sure)


@dataclass(frozen=True)
class _Rounds:
    """R2Ts of the commands at both taps, by command, in order of the end of their data at the target's tap."""

    r2t: _Instants
    data: _Instants
    start: Array
    """Per command its first round."""
    count: Array
    """Per command its rounds."""
    is_known: Array
    """Per command whether every instant of each round was captured at both taps."""

    @classmethod
    def of(
        cls, near: Source, far: Source, rows: tuple[Array, Array], connections: tuple[Array, Array], reader: _Reader
    ) -> _Rounds:
        tables = near("rounds"), far("rounds")
        place = tuple(_places(table, row) for table, row in zip(tables, rows, strict=True))
        wanted = tuple(np.flatnonzero(each >= 0) for each in place)
        # one number per round: the command's place, and the R2TSN; where a snaplen cuts that, the Target Transfer Tag
        has_numbers = all(known(table, "r2t_sn")[rounds].all() for table, rounds in zip(tables, wanted, strict=True))
        number = "r2t_sn" if has_numbers else "target_transfer_tag"
        codes = tuple(
            place[side][wanted[side]] << 32 | tables[side].raw(number)[wanted[side]].astype(np.int64) for side in (0, 1)
        )
        _, in_near, in_far = np.intersect1d(codes[0], codes[1], return_indices=True)
        picked = wanted[0][in_near], wanted[1][in_far]
        command = place[0][picked[0]]
        on = connections[0][command], connections[1][command]
        r2t, data = (reader.read(tables, picked, name, on) for name in ("r2t_ns", "data_last_ns"))
        order = np.lexsort((data.far, command))
        count = np.bincount(command, minlength=len(rows[0]))
        is_whole = np.bincount(command, r2t.is_known & data.is_known, minlength=len(rows[0])) == count
        for side in (0, 1):
            is_whole &= np.bincount(place[side][wanted[side]], minlength=len(rows[0])) == count
        return cls(r2t.select(order), data.select(order), np.cumsum(count) - count, count, is_whole)


def _places(rounds: Table, rows: Array) -> Array:
    """Per round the place of its command in ``rows``; -1 if it is not there."""
    cycle = rounds.raw("cycle").astype(np.int64)
    if not len(rows) or not len(cycle):
        return np.full(len(cycle), -1, dtype=np.int64)
    order = np.argsort(rows)
    place = order[np.minimum(np.searchsorted(rows[order], cycle), len(rows) - 1)]
    return np.where(rows[place] == cycle, place, -1)


class _Walk:
    """The sums of the legs of all commands, on the way back from their statuses."""

    def __init__(self, first: Array, first_held: Array) -> None:
        self._first, self._first_held = first, first_held
        zero = np.zeros(len(first), dtype=np.int64)
        self.initiator, self.to_target, self.target, self.to_initiator = (zero.copy() for _ in range(4))
        self.initiator_held, self.target_held = zero.copy(), zero.copy()
        self.least_hop = np.full(len(first), np.iinfo(np.int64).max)
        """The shortest single way between the taps."""

    def back(self, request: _Request, status: _Instants, rounds: _Rounds) -> None:
        """From the status to the request, one R2T of each command in every turn."""
        answer = status
        place = rounds.start + rounds.count - 1
        self._answered(np.arange(len(place)), status)
        for _ in range(int(rounds.count.max(initial=0))):
            which = np.flatnonzero(place >= rounds.start)
            at = place[which]
            place[which] -= 1
            # the latest data that had come before the answer; for later ones the target did not wait
            far = rounds.data.far[at]
            waited = (far <= answer.far[which]) & (far >= request.before(answer).far[which])
            which, at = which[waited], at[waited]
            data, r2t = rounds.data.select(at), rounds.r2t.select(at)
            self._came(which, data, answer.select(which))
            self.initiator[which] += data.near - r2t.near
            self.initiator_held[which] += data.near_held - r2t.near_held
            self._answered(which, r2t)
            answer = _put(answer, which, r2t)
        came = request.before(answer)
        self._came(np.arange(len(place)), came, answer)
        self.initiator += came.near - self._first
        self.initiator_held += came.near_held - self._first_held

    def _came(self, which: Array, data: _Instants, answer: _Instants) -> None:
        """What the target waited for came, and it answered."""
        self.target[which] += answer.far - data.far
        self.target_held[which] += answer.far_held - data.far_held
        self.to_target[which] += data.far - data.near
        self.least_hop[which] = np.minimum(self.least_hop[which], data.far - data.near)

    def _answered(self, which: Array, answer: _Instants) -> None:
        """An answer of the target reached the initiator."""
        self.to_initiator[which] += answer.near - answer.far
        self.least_hop[which] = np.minimum(self.least_hop[which], answer.near - answer.far)


def _put(instants: _Instants, which: Array, other: _Instants) -> _Instants:
    """The instants, with others in some places."""
    columns = []
    for each in fields(instants):
        column = getattr(instants, each.name).copy()
        column[which] = getattr(other, each.name)
        columns.append(column)
    return _Instants(*columns)


HELD: Final = ("transfer", "ack_wait", "receive_window", "congestion_window", "send_buffer", "loss_recovery")
"""Parts in which the network, not the host, has the data: it leaves, or its ACKs have not come."""


class Held:
    """The stretches of one capture in which TCP held data, by connection."""

    def __init__(self, budget: Table) -> None:
        """``budget`` is the table of the whole capture."""
        codes = [PARTS.index(part) for part in HELD]
        is_held = known(budget, "connection") & np.isin(budget.raw("part"), codes)
        held = budget.select(is_held)
        self._parts = Partition(held, held.raw("connection"))

    def until(self, connections: Array, times_ns: Array) -> Array:
        """Held time of each connection until each instant on the capture's clock, int64."""
        sums = np.zeros(len(times_ns), dtype=np.int64)
        order = order_of(connections)
        for first, last in pairwise([*first_rows(connections[order]).tolist(), len(order)]):
            at = order[first:last]
            rows = self._parts.rows(int(connections[at[0]]))
            sums[at] = covered_until(rows.raw("time_first_ns"), rows.raw("time_last_ns"), times_ns[at].astype(np.int64))
        return sums
