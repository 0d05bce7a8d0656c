"""Commands whose instants a capture shows wrongly, because it lacks packets: nothing is said of their legs.

A packet that a capture lacks is no harm where the network delivered it and its bytes were sent once. Where the network
lost a copy of these bytes, an instant may be that of another copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.table import Source, Table
from iscsitrace.taps.commands import Matched
from iscsitrace.taps.network import Network
from iscsitrace.taps.packets import Packets

Array = NDArray[Any]

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
