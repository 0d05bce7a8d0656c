"""The clock of a file of samples against the clock of the capture.

A packet passes the tap before its receiver counts it, and after its sender counted it. So each sample bounds the offset
between the clocks, however long the network took:

- bytes that it counts as received, or acknowledged, had passed the tap by then: offset >= their time at the tap - t
- bytes that it does not count as sent yet passed the tap later: offset <= their time at the tap - t

The bounds of all samples of a file hold together. A sampler that was stopped between reading the counters and the clock
contradicts the others: the offset is among those that the fewest bounds contradict. Zero is kept if it is one of them;
else it is the middle of them.
Packets that the capture missed only widen the bounds. Connections whose handshake was not captured bound nothing,
because the kernel counts from the handshake on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.table import Table

Array = NDArray[Any]


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


def offset(samples: Table, connections: Table, segments: Table) -> Offset:
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
    keys = samples.raw("connection").astype(np.int64) * 2 + samples.raw("to_target")
    by_packet = segments.raw("connection").astype(np.int64) * 2 + segments.raw("to_target")
    for key in np.unique(keys).tolist():
        if not has_syn.get(key >> 1, False):
            continue
        own = samples.select(keys == key)
        sent = _Passing(segments.select(by_packet == key))
        received = _Passing(segments.select(by_packet == key ^ 1))
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
