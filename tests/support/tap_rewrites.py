"""What hosts and proxies do to the packets of a capture: segments merged or cut anew, packets held twice.

The times of the bytes stay: so the true legs stay the same, within the time in which segments are merged.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.capture_file import Record

IPV4_AT = 14
"""Where the IPv4 header begins behind that of Ethernet."""

MERGED_WITHIN_NS = 10_000
"""A network card hands over the segments of one interrupt, well below the 20 us to which legs are known."""
MERGED_BYTES_MAX = 60_000
BATCH = 32
COOKED_LINK_TYPE = 113
"""LINKTYPE_LINUX_SLL, the link type of the ``any`` device."""
_SYN, _PSH, _ACK = 2, 8, 16
_BHS_BYTES = 48
_DATA_IN, _DATA_OUT = 0x25, 0x05
_FINAL, _STATUS = 0x80, 0x01


@dataclass(frozen=True)
class _Place:
    """Where the headers of one IPv4 packet are, and what they say."""

    tcp: int
    payload: int
    ports: bytes
    sequence_number: int
    acknowledgment_number: int
    flags: int

    @classmethod
    def of(cls, data: bytes) -> _Place:
        tcp = IPV4_AT + (data[IPV4_AT] & 15) * 4
        sequence_number, acknowledgment_number = struct.unpack_from(">II", data, tcp + 4)
        payload = tcp + (data[tcp + 12] >> 4) * 4
        return cls(tcp, payload, data[tcp : tcp + 4], sequence_number, acknowledgment_number, data[tcp + 13])


def _with_length(data: bytes, time_ns: int) -> Record:
    """A record of the packet, with the IP total length that it has now."""
    changed = bytearray(data)
    struct.pack_into(">H", changed, IPV4_AT + 2, len(data) - IPV4_AT)
    return Record(time_ns, bytes(changed), len(changed))


def merged(records: Iterable[Record]) -> list[Record]:
    """As a host sees its packets with offload (TSO and GRO): successive segments are one, at the time of the first."""
    out: list[Record] = []
    open_at: dict[bytes, int] = {}
    for record in records:
        place = _Place.of(record.data)
        direction = record.data[IPV4_AT + 12 : IPV4_AT + 20] + place.ports
        payload = record.data[place.payload :]
        at = open_at.pop(direction, None)
        if at is not None and payload and _continues(out[at], record, place):
            # a host hands on the flags of the last segment
            whole = bytearray(out[at].data + payload)
            whole[place.tcp + 13] |= place.flags
            out[at] = _with_length(bytes(whole), out[at].time_ns)
        else:
            at = len(out)
            out.append(record)
        if payload and not place.flags & _PSH:
            open_at[direction] = at
    return out


def _continues(before: Record, record: Record, place: _Place) -> bool:
    first = _Place.of(before.data)
    ends = (first.sequence_number + len(before.data) - first.payload) % (1 << 32)
    return (
        ends == place.sequence_number
        and first.acknowledgment_number == place.acknowledgment_number
        and record.time_ns - before.time_ns <= MERGED_WITHIN_NS
        and len(before.data) + len(record.data) <= MERGED_BYTES_MAX
    )


def doubled(records: Sequence[Record]) -> list[Record]:
    """As the ``any`` device of a bridge shows packets, with a cooked link header: batches, each twice.

    The second device has the packets of a batch with the times of the first (Linux stamps a received packet once).
    """
    out: list[Record] = []
    for first in range(0, len(records), BATCH):
        cooked = (
            (each.time_ns, struct.pack(">HHH8sH", 0, 1, 6, b"\x02\0\0\0\0\1", 0x0800) + each.data[IPV4_AT:])
            for each in records[first : first + BATCH]
        )
        out += 2 * [Record(time_ns, data, len(data)) for time_ns, data in cooked]
    return out


@dataclass
class _Half:
    """One direction of a connection behind a proxy that cuts data PDUs anew."""

    first: int
    """Sequence number of its first byte."""
    content: bytearray = field(default_factory=bytearray)
    places: list[int] = field(default_factory=list)
    """Offsets of the bytes before which the proxy puts a header, in order."""
    headers: list[bytes] = field(default_factory=list)

    def offset(self, sequence_number: int) -> int:
        return (sequence_number - self.first) % (1 << 32)

    def take(self, offset: int, payload: bytes) -> None:
        if len(self.content) < offset + len(payload):
            self.content.extend(bytes(offset + len(payload) - len(self.content)))
        self.content[offset : offset + len(payload)] = payload

    def moved(self, offset: int) -> int:
        """Where the byte of this offset, or the header before it, is behind the proxy."""
        return offset + _BHS_BYTES * bisect_left(self.places, offset)

    def part(self, start: int, end: int) -> bytes:
        """These bytes behind the proxy, with the headers before them."""
        out = bytearray()
        for number in range(bisect_left(self.places, start), bisect_left(self.places, end)):
            out += self.content[start : self.places[number]] + self.headers[number]
            start = self.places[number]
        return bytes(out + self.content[start:end])

    def cut(self, most_bytes: int) -> None:
        """Cuts each data PDU into PDUs with at most so many bytes of data."""
        numbers: dict[bytes, int] = {}
        offset = 0
        while offset + _BHS_BYTES <= len(self.content):
            header = bytes(self.content[offset : offset + _BHS_BYTES])
            data_bytes = int.from_bytes(header[5:8])
            begin = offset + _BHS_BYTES + 4 * header[4]
            if header[0] & 0x3F in (_DATA_IN, _DATA_OUT):
                tags = header[16:24]
                for start in range(0, max(data_bytes, 1), most_bytes):
                    is_last = start + most_bytes >= data_bytes
                    piece = _piece(header, start, min(most_bytes, data_bytes - start), is_last=is_last)
                    piece = piece[:36] + numbers.get(tags, 0).to_bytes(4) + piece[40:]
                    numbers[tags] = numbers.get(tags, 0) + 1
                    if start:
                        self.places.append(begin + start)
                        self.headers.append(piece)
                    else:
                        self.content[offset:begin] = piece
                if header[1] & (_STATUS if header[0] & 0x3F == _DATA_IN else _FINAL):
                    del numbers[tags]
            offset = begin + (data_bytes + 3) // 4 * 4


def _piece(header: bytes, start: int, data_bytes: int, *, is_last: bool) -> bytes:
    """The header of one part of a data PDU: flags and, of Data-In, the status belong to the last one."""
    piece = bytearray(header)
    piece[5:8] = data_bytes.to_bytes(3)
    struct.pack_into(">I", piece, 40, int.from_bytes(header[40:44]) + start)
    if not is_last:
        piece[1] = 0
        if header[0] & 0x3F == _DATA_IN:
            piece[3] = 0
            piece[24:28] = bytes(4)
    return bytes(piece)


def through_proxy(records: Sequence[Record], most_bytes: int = 12_288, segment_bytes: int = 700) -> list[Record]:
    """Behind a proxy with connections of its own: data PDUs and segments are cut anew, each byte at its time.

    Its hosts have other TCP timestamps, and number their packets themselves.

    For sessions without digests and additional header segments.
    """
    halves: dict[bytes, _Half] = {}
    for record in records:
        place = _Place.of(record.data)
        if place.flags & _SYN:
            halves[place.ports] = _Half((place.sequence_number + 1) % (1 << 32))
        else:
            halves[place.ports].take(halves[place.ports].offset(place.sequence_number), record.data[place.payload :])
    for half in halves.values():
        half.cut(most_bytes)
    out: list[Record] = []
    for record in records:
        place = _Place.of(record.data)
        half, opposite = halves[place.ports], halves[place.ports[2:] + place.ports[:2]]
        head = bytearray(record.data[: place.payload])
        _shift_timestamps(head, place)
        if place.flags & _ACK:
            acknowledged = opposite.moved(opposite.offset(place.acknowledgment_number))
            struct.pack_into(">I", head, place.tcp + 8, (opposite.first + acknowledged) % (1 << 32))
        if place.flags & _SYN:
            out.append(_with_length(_numbered(head, len(out)), record.time_ns))
            continue
        start = half.offset(place.sequence_number)
        content = half.part(start, start + len(record.data) - place.payload)
        for begin in range(0, max(len(content), 1), segment_bytes):
            struct.pack_into(">I", head, place.tcp + 4, (half.first + half.moved(start) + begin) % (1 << 32))
            packet = _numbered(head, len(out)) + content[begin : begin + segment_bytes]
            out.append(_with_length(packet, record.time_ns))
    return out


def _numbered(head: bytearray, number: int) -> bytes:
    """The packet with an identification in turn."""
    struct.pack_into(">H", head, IPV4_AT + 4, number % 65_535 + 1)
    return bytes(head)


def _shift_timestamps(head: bytearray, place: _Place) -> None:
    """Moves TSval and TSecr of each side by as much, if the packet has them."""
    at = place.tcp + 20
    while at < place.payload and head[at]:
        if head[at] == 1:
            at += 1
            continue
        if head[at] == 8:
            for value in (at + 2, at + 6):
                shifted = struct.unpack_from(">I", head, value)[0] + 777_777
                struct.pack_into(">I", head, value, shifted % (1 << 32))
        at += head[at + 1]
