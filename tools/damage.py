"""Damages captures for tests of the commands: bytes, records, times, lengths and iSCSI headers, by a random generator.

It reads only as much of a file as it needs to find records (pcap and pcapng as tcpdump and dumpcap write them), and
never fails on what it cannot read: then it changes bytes.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

_GZIP = b"\x1f\x8b"
_PCAP = {b"\xd4\xc3\xb2\xa1": 6, b"\x4d\x3c\xb2\xa1": 9}
"""Magic number of a little-endian pcap, and the digits of its fractions of a second."""
_SECTION, _INTERFACE, _ENHANCED = 0x0A0D0D0A, 1, 6
_EXTREMES = (0, 1, 2, 3, 0x7F, 0x80, 0xFF)
_WORDS = (0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF, 0x00FF_FFFF, 0x0100_0000)
_OPCODES = (0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3F)
_TIMES_S = (0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
_ETHERNET_IP_TCP = 54


@dataclass(frozen=True)
class Place:
    """Where a record is: its start, that of its time, lengths and data, and its end."""

    start: int
    time: int
    lengths: int
    data: int
    end: int


def damaged(content: bytes, seed: int) -> bytes:
    """A capture with one to four damages; the same seed does the same."""
    chance = random.Random(seed)  # noqa: S311 -- reproducible, no secret
    is_compressed = content[:2] == _GZIP
    plain = bytearray(gzip.decompress(content) if is_compressed else content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        chance.choice(_DAMAGES)(plain, chance)
    if not is_compressed or chance.random() < 0.9:
        return bytes(plain)
    packed = bytearray(gzip.compress(bytes(plain), 1, mtime=0))
    chance.choice((_bytes, _cut, lambda data, chance: None))(packed, chance)
    return bytes(packed)


def places(content: bytes | bytearray) -> list[Place]:
    """The records of a capture, as far as they can be followed."""
    if bytes(content[:4]) in _PCAP:
        return _of_pcap(content)
    return _of_pcapng(content) if content[:4] == struct.pack("<I", _SECTION) else []


def _of_pcap(content: bytes | bytearray) -> list[Place]:
    found, at = [], 24
    while at + 16 <= len(content):
        (length,) = struct.unpack_from("<I", content, at + 8)
        end = at + 16 + length
        if end > len(content):
            break
        found.append(Place(at, at, at + 8, at + 16, end))
        at = end
    return found


def _of_pcapng(content: bytes | bytearray) -> list[Place]:
    found, at = [], 0
    while at + 12 <= len(content):
        kind, length = struct.unpack_from("<II", content, at)
        if length < 12 or at + length > len(content):
            break
        if kind == _ENHANCED and length >= 32:
            (captured,) = struct.unpack_from("<I", content, at + 20)
            found.append(Place(at, at + 12, at + 20, at + 28, min(at + 28 + captured, at + length)))
        at += length
    return found


def _bytes(data: bytearray, chance: random.Random) -> None:
    """Single bytes, also in the file's own headers."""
    for _ in range(chance.choice((1, 4, 32))):
        if data:
            at = chance.randrange(min(len(data), chance.choice((64, 512, len(data)))))
            data[at] = chance.choice((chance.randrange(256), data[at] ^ 1 << chance.randrange(8)))


def _cut(data: bytearray, chance: random.Random) -> None:
    """The file ends early."""
    del data[chance.randrange(len(data) + 1) :]


def _words(data: bytearray, chance: random.Random) -> None:
    """Numbers of four bytes, in either order, become extreme."""
    for _ in range(chance.choice((1, 8))):
        if len(data) >= 4:
            at = chance.randrange(len(data) - 3)
            struct.pack_into(chance.choice(("<I", ">I")), data, at, chance.choice(_WORDS))


def _pieces(data: bytearray, chance: random.Random) -> None:
    """A piece is removed, repeated, or moved."""
    length = chance.choice((1, 7, 60, 1500, 20_000))
    at, to = (chance.randrange(len(data) + 1) for _ in range(2))
    piece = data[at : at + length]
    if chance.random() < 0.5:
        del data[at : at + length]
    if chance.random() < 0.7:
        data[to:to] = piece * chance.choice((1, 1, 3))


def _records(data: bytearray, chance: random.Random) -> None:
    """Whole records are removed, repeated or exchanged: losses, copies, reordering."""
    found = places(data)
    if len(found) < 3:
        return
    records = [bytes(data[each.start : _after(found, number, data)]) for number, each in enumerate(found)]
    for _ in range(chance.choice((1, 5, 40))):
        at, to = chance.randrange(len(records)), chance.randrange(len(records))
        match chance.randrange(3):
            case 0 if len(records) > 2:
                del records[at]
            case 1:
                records.insert(to, records[at])
            case _:
                records[at], records[to] = records[to], records[at]
    data[found[0].start :] = b"".join(records)


def _after(found: list[Place], number: int, data: bytearray) -> int:
    return found[number + 1].start if number + 1 < len(found) else len(data)


def _times(data: bytearray, chance: random.Random) -> None:
    """Times of one record, of some or of all become extreme, or go back."""
    found = places(data)
    share = chance.choice((0.0, 0.1, 1.0))
    for each in found:
        if chance.random() < share or each is found[len(found) // 2]:
            value = chance.choice((*_TIMES_S, chance.randrange(1 << 32)))
            struct.pack_into("<I", data, each.time + chance.choice((0, 4)), value)


def _lengths(data: bytearray, chance: random.Random) -> None:
    """Captured or original length of a record."""
    if found := places(data):
        each = chance.choice(found)
        value = chance.choice((*_WORDS, chance.randrange(1 << 16)))
        struct.pack_into("<I", data, each.lengths + chance.choice((0, 4)), value)


def _headers(data: bytearray, chance: random.Random) -> None:
    """Fields of Ethernet, IP, TCP and of the first PDU of some packets."""
    found = places(data)
    for _ in range(chance.choice((1, 6, 60))):
        if not found:
            return
        each = chance.choice(found)
        room = each.end - each.data
        if room <= 0:
            continue
        start = each.data + (min(_ETHERNET_IP_TCP + chance.choice((0, 12)), room - 1) if chance.random() < 0.7 else 0)
        at = min(start + chance.choice((0, 1, 4, 5, 8, 16, 20, 24, 28, 32, 36, 40, chance.randrange(48))), each.end - 1)
        data[at] = chance.choice((*_OPCODES, *_EXTREMES, chance.randrange(256)))


_DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_bytes, _cut, _words, _pieces),
    *(_records, _times, _lengths, _headers, _headers),
)
