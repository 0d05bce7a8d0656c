"""A capture of any length, generated while it is read: one connection, reads of one block, one after another.

Each takes LATENCY_NS from command to status and is followed by the next after THINK_NS; nothing is lost.
"""

from __future__ import annotations

import io
import struct
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

LATENCY_NS = 1_000_000
THINK_NS = 1_000_000
BLOCK_BYTES = 512
_HEADERS = 14 + 20 + 20
_SNAPLEN = _HEADERS + 48
_START_S = 1_700_000_000
_PART = 50_000
_ADDRESSES = (bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
_PORTS = (50_000, 3260)


def endless_capture(cycle_count: int) -> tuple[IO[bytes], int]:
    """A pcap stream of this many cycles (rounded up to a whole number of parts), and their exact number."""
    parts = -(-cycle_count // _PART)
    return cast(IO[bytes], _Stream(parts)), parts * _PART


def many_connections(count: int) -> bytes:
    """A pcap file of this many connections, one per second: a read and a FIN each."""
    number = np.arange(count, dtype=np.int64)
    start_ns = number * 1_000_000_000
    records = _cycles(start_ns, number, (np.ones_like(number), np.ones_like(number)), has_fin=True)
    for kind in records.dtype.names or ():
        frame = records[kind]["frame"]
        # the initiator's address: another for each
        place = 26 if kind != "data" else 30
        frame[:, place + 1] = number >> 16 & 0xFF
        frame[:, place + 2] = number >> 8 & 0xFF
        frame[:, place + 3] = number & 0xFF
        frame[:, place] = 11
    return _FILE_HEADER + records.tobytes()


_FILE_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, _SNAPLEN, 1)


class _Stream(io.RawIOBase):
    """The file header, then one part after another."""

    def __init__(self, parts: int) -> None:
        self._parts = iter(range(parts))
        self._left = memoryview(_FILE_HEADER)

    def read(self, size: int = -1, /) -> bytes:
        """At most this many bytes."""
        if not self._left:
            part = next(self._parts, None)
            self._left = memoryview(b"" if part is None else _part(part))
        piece, self._left = self._left[:size], self._left[size:]
        return bytes(piece)


def _part(number: int) -> bytes:
    cycle = np.arange(number * _PART, (number + 1) * _PART, dtype=np.int64)
    sent = (cycle * 48 + 1, cycle * (48 + BLOCK_BYTES) + 1)
    return _cycles(cycle * (LATENCY_NS + THINK_NS), cycle, sent, has_fin=False).tobytes()


def _cycles(
    start_ns: NDArray[Any], cycle: NDArray[Any], sent: tuple[NDArray[Any], NDArray[Any]], *, has_fin: bool
) -> NDArray[Any]:
    """The packets of reads: command, data with status, ACK."""
    records = np.zeros(len(cycle), dtype=[("command", _record(48)), ("data", _record(48)), ("ack", _record(0))])
    serial = (cycle + 1) & 0xFFFFFFFF
    tag = cycle & 0x7FFFFFFF
    command = records["command"]
    _packet(command, start_ns, 0, sent[0], sent[1], 48)
    pdu = command["payload"]
    pdu[:, 0], pdu[:, 1] = 0x01, 0xC1
    _field(pdu, 16, tag)
    _field(pdu, 20, np.full_like(cycle, BLOCK_BYTES))
    _field(pdu, 24, serial)
    _field(pdu, 28, serial)
    pdu[:, 32] = 0x28  # READ(10), of one block
    _field(pdu, 34, tag)
    pdu[:, 40] = 1
    data = records["data"]
    _packet(data, start_ns + LATENCY_NS, 1, sent[1], sent[0] + 48, 48 + BLOCK_BYTES)
    pdu = data["payload"]
    pdu[:, 0], pdu[:, 1] = 0x25, 0x81
    _field(pdu, 4, np.full_like(cycle, BLOCK_BYTES))
    _field(pdu, 16, tag)
    pdu[:, 20:24] = 0xFF
    _field(pdu, 24, serial)
    _field(pdu, 28, serial + 1)
    _field(pdu, 32, serial + 64)
    _packet(records["ack"], start_ns + LATENCY_NS + 1000, 0, sent[0] + 48, sent[1] + 48 + BLOCK_BYTES, 0)
    if has_fin:
        records["ack"]["frame"][:, 47] |= 1
    return records


def _record(payload: int) -> Any:
    return np.dtype([("header", "<u4", 4), ("frame", "u1", _HEADERS), ("payload", "u1", payload)])


def _packet(
    record: NDArray[Any],
    time_ns: NDArray[Any],
    sender: int,
    sequence: NDArray[Any],
    acknowledged: NDArray[Any],
    length: int,
) -> None:
    seconds, fraction = np.divmod(time_ns, 1_000_000_000)
    captured = record["payload"].shape[1]
    header = record["header"]
    header[:, 0], header[:, 1] = seconds + _START_S, fraction
    header[:, 2], header[:, 3] = _HEADERS + captured, _HEADERS + length
    frame = record["frame"]
    frame[:, 12] = 0x08
    frame[:, 14:] = 0
    frame[:, 14] = 0x45
    frame[:, 16], frame[:, 17] = divmod(40 + length, 256)
    frame[:, 22], frame[:, 23] = 64, 6
    frame[:, 26:30] = list(_ADDRESSES[sender])
    frame[:, 30:34] = list(_ADDRESSES[1 - sender])
    frame[:, 34:38] = list(struct.pack(">HH", _PORTS[sender], _PORTS[1 - sender]))
    _field(frame, 38, sequence & 0xFFFFFFFF)
    _field(frame, 42, acknowledged & 0xFFFFFFFF)
    frame[:, 46], frame[:, 47] = 0x50, 0x10
    frame[:, 48:50] = 0xFF


def _field(rows: NDArray[Any], at: int, values: NDArray[Any]) -> None:
    """Four bytes of every row, the most significant first."""
    rows[:, at : at + 4] = values.astype(">u4").view("u1").reshape(-1, 4)
