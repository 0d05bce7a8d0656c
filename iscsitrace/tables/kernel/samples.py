"""Files of samples of TCP_INFO: their text, as the core reads it, and their clock against that of the capture.

The core reads a time and a line of ``ss -tinOH``. Lines of JSON (``t local lport peer pport`` and values of TCP_INFO,
an object a line) become such lines.

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

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.errors import InputInvalid
from iscsitrace.tables.kernel.limits import sender_keys
from iscsitrace.tables.partition import Partition
from iscsitrace.tables.table import Table

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
