"""Packets to capture files and back: pcap and pcapng written, cut, thinned, and read again for thinning.

It never looks into a record. It reads only the plain little-endian files that tcpdump and dumpcap write here, to drop
packets from a real capture; it shares no code with the readers under test.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import TypeVar

from tests.support.transport import Packet

P = TypeVar("P")


@dataclass(frozen=True)
class Record:
    """One record of a capture file."""

    time_ns: int
    data: bytes
    original_length: int


def write_pcap(
    file: FilePath, packets: Sequence[Packet | Record], link_type: int, *, is_nanoseconds: bool = True
) -> FilePath:
    """A classic pcap file, times in nanoseconds or microseconds."""
    unit_ns = 1 if is_nanoseconds else 1000
    out = bytearray(
        struct.pack("<IHHiIII", 0xA1B23C4D if is_nanoseconds else 0xA1B2C3D4, 2, 4, 0, 0, 262_144, link_type)
    )
    head = struct.Struct("<IIII").pack
    for packet in packets:
        seconds, rest_ns = divmod(packet.time_ns, 1_000_000_000)
        out += head(seconds, rest_ns // unit_ns, len(packet.data), packet.original_length)
        out += packet.data
    file.write_bytes(out)
    return file


def write_pcapng(file: FilePath, packets: Sequence[Packet | Record], link_type: int) -> FilePath:
    """A pcapng file of one section and one interface, times in nanoseconds."""
    out = bytearray(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
    # if_tsresol (option 9) 10^-9, end of options
    out += block(1, struct.pack("<HHIHHB3xHH", link_type, 0, 262_144, 9, 1, 9, 0, 0))
    # as block() makes it, in a third of the time
    head = struct.Struct("<IIIIIII").pack
    for packet in packets:
        data, time_ns = packet.data, packet.time_ns
        length = 32 + (len(data) + 3 & ~3)
        out += head(6, length, 0, time_ns >> 32, time_ns & 0xFFFFFFFF, len(data), packet.original_length)
        out += data
        out += bytes(-len(data) % 4)
        out += length.to_bytes(4, "little")
    file.write_bytes(out)
    return file


def block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def drops(count: int) -> bytes:
    """Statistics of the first interface of a pcapng file: so many dropped packets (isb_ifdrop)."""
    return block(5, bytes(12) + struct.pack("<HHQHH", 5, 8, count, 0, 0))


def read_records(file: FilePath) -> tuple[list[Record], int]:
    """All records of a little-endian pcap or one-interface pcapng file, gzipped or not, and their link type."""
    content = file.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    magic = struct.unpack_from("<I", content)[0]
    records = []
    if magic in (0xA1B23C4D, 0xA1B2C3D4):
        unit_ns = 1 if magic == 0xA1B23C4D else 1000
        place, link_type = 24, struct.unpack_from("<I", content, 20)[0] & 0xFFFF
        while place < len(content):
            seconds, rest, captured, original = struct.unpack_from("<IIII", content, place)
            data = content[place + 16 : place + 16 + captured]
            records.append(Record(seconds * 1_000_000_000 + rest * unit_ns, data, original))
            place += 16 + captured
        return records, link_type
    assert magic == 0x0A0D0D0A, f"{file}: not read here"
    place, unit_ns, link_type = 0, 1000, 1
    while place < len(content):
        kind, length = struct.unpack_from("<II", content, place)
        if kind == 1:
            link_type = struct.unpack_from("<H", content, place + 8)[0]
            option = place + 16
            while option + 4 <= place + length - 4:
                code, size = struct.unpack_from("<HH", content, option)
                if code == 9:
                    unit_ns = {9: 1, 6: 1000}[content[option + 4]]
                option += 4 + size + -size % 4
        elif kind == 6:
            _, high, low, captured, original = struct.unpack_from("<IIIII", content, place + 8)
            data = content[place + 28 : place + 28 + captured]
            records.append(Record((high << 32 | low) * unit_ns, data, original))
        place += length
    return records, link_type


def write_delayed(file: FilePath, source: FilePath, host: bytes, delay_ns: int) -> FilePath:
    """The packets of a capture, with those of one IPv4 host later; and in order of time."""
    records, link_type = read_records(source)
    moved = [
        replace(record, time_ns=record.time_ns + delay_ns * (host in (record.data[26:30], record.data[30:34])))
        for record in records
    ]
    return write_pcapng(file, sorted(moved, key=lambda record: record.time_ns), link_type)


def cut(packets: Sequence[Packet], snaplen_bytes: int) -> list[Packet]:
    """The same packets, captured with that snaplen."""
    return [replace(packet, data=packet.data[:snaplen_bytes]) for packet in packets]


def thin(packets: Sequence[P], share: float, seed: int) -> list[P]:
    """A capture that missed each packet with that probability."""
    chance = random.Random(seed)  # noqa: S311 (repeatable, not secret)
    return [packet for packet in packets if chance.random() >= share]
