"""Damages captures for tests of the commands: bytes, records, times, lengths, iSCSI headers and blocks of pcapng, and
splices two captures, by a random generator.

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
_BHS_BYTES = 48
_SPLICED = 0.15
"""Share of the captures that have packets of another one."""


@dataclass(frozen=True)
class Place:
    """Where a record is: its start, that of its time, lengths and data, and its end."""

    start: int
    time: int
    lengths: int
    data: int
    end: int


def damaged(content: bytes, seed: int, other: bytes = b"") -> bytes:
    """A capture with one to four damages, one of which may splice in ``other``; the same seed does the same."""
    chance = random.Random(seed)  # noqa: S311 -- reproducible, no secret
    is_compressed = content[:2] == _GZIP
    plain = _plain(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        chance.choice(_DAMAGES)(plain, chance)
    if other and chance.random() < _SPLICED:
        _splice(plain, _plain(other), chance)
    if not is_compressed or chance.random() < 0.9:
        return bytes(plain)
    packed = bytearray(gzip.compress(bytes(plain), 1, mtime=0))
    chance.choice((_bytes, _cut, lambda data, chance: None))(packed, chance)
    return bytes(packed)


def _plain(content: bytes) -> bytearray:
    return bytearray(gzip.decompress(content) if content[:2] == _GZIP else content)


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


def _swaps(data: bytearray, chance: random.Random) -> None:
    """Neighbours change places, with their times or without: the order of several capture queues."""
    found = places(data)
    if len(found) < 2:
        return
    keeps_times = chance.random() < 0.5
    for _ in range(chance.choice((1, 10, 100))):
        at = chance.randrange(len(found) - 1)
        first, second = found[at], found[at + 1]
        if first.end - first.start != second.end - second.start:
            # records of other lengths keep their places, and exchange their times
            one, two = (bytes(data[each.time : each.time + 8]) for each in (first, second))
            data[first.time : first.time + 8], data[second.time : second.time + 8] = two, one
            continue
        one, two = (bytes(data[each.start : each.end]) for each in (first, second))
        data[first.start : first.end], data[second.start : second.end] = two, one
        if keeps_times:
            at_first, at_second = first.time - first.start, second.time - second.start
            data[first.time : first.time + 8] = one[at_first : at_first + 8]
            data[second.time : second.time + 8] = two[at_second : at_second + 8]


def _drift(data: bytearray, chance: random.Random) -> None:
    """From a packet on the clock is set back or forward, by microseconds to days; or each time jitters."""
    found, digits = places(data), _PCAP.get(bytes(data[:4]))
    if not found:
        return
    begin = chance.randrange(len(found))
    step = chance.choice((1, 50, 1_000, 200_000, 3_000_000, 86_400_000_000)) * chance.choice((-1, 1))
    jitters = chance.random() < 0.5
    for each in found[begin:]:
        moved = chance.randrange(-abs(step), abs(step) + 1) if jitters else step
        high, low = struct.unpack_from("<II", data, each.time)
        if digits is None:
            # pcapng counts in the unit of its interface
            moment = max((high << 32 | low) + moved, 0) & (1 << 64) - 1
            struct.pack_into("<II", data, each.time, moment >> 32, moment & 0xFFFF_FFFF)
        else:
            whole = max(high * 10**digits + low + moved * 10 ** (digits - 6), 0)
            struct.pack_into("<II", data, each.time, whole // 10**digits & 0xFFFF_FFFF, whole % 10**digits)


def _basic_headers(data: bytearray, chance: random.Random) -> None:
    """Fields of PDUs that begin with a packet's payload: opcode, flags, lengths, tags and sequence numbers."""
    found = places(data)
    for _ in range(chance.choice((1, 8, 80))):
        if not found:
            return
        each = chance.choice(found)
        payload = _payload_of(data, each)
        if payload is None or each.end - payload < _BHS_BYTES:
            continue
        at, length = chance.choice(_FIELDS)
        if chance.random() < 0.5:
            value = int.from_bytes(data[payload + at : payload + at + length], "big") + chance.choice((-1, 1, 2, -64))
        else:
            value = chance.choice((*_WORDS, *_EXTREMES, chance.randrange(1 << 32)))
        data[payload + at : payload + at + length] = (value & (1 << 8 * length) - 1).to_bytes(length, "big")


def _payload_of(data: bytearray, place: Place) -> int | None:
    """Where the TCP payload of a record begins, if it is Ethernet, IPv4 and TCP."""
    start = place.data
    if place.end - start < _ETHERNET_IP_TCP or data[start + 12 : start + 14] != b"\x08\x00" or data[start + 23] != 6:
        return None
    segment = start + 14 + 4 * (data[start + 14] & 15)
    return segment + 4 * (data[segment + 12] >> 4) if segment + 12 < place.end else None


def _blocks(data: bytearray, chance: random.Random) -> None:
    """Blocks of a pcapng are removed, repeated, moved, or become of another type; so do interfaces and statistics."""
    found, at = [], 0
    while at + 12 <= len(data):
        _, length = struct.unpack_from("<II", data, at)
        if length < 12 or at + length > len(data):
            break
        found.append(bytes(data[at : at + length]))
        at += length
    if data[:4] != struct.pack("<I", _SECTION) or len(found) < 3:
        return
    for _ in range(chance.choice((1, 4))):
        one = chance.randrange(min(len(found), chance.choice((4, len(found)))))
        match chance.randrange(4):
            case 0 if len(found) > 3:
                del found[one]
            case 1:
                found.insert(chance.randrange(len(found) + 1), found[one])
            case 2:
                found.insert(chance.randrange(len(found)), found.pop(one))
            case _:
                kind = struct.pack("<I", chance.choice((0, 1, 2, 3, 4, 5, 6, 0x0BAD, 0x0A0D0D0A)))
                found[one] = kind + found[one][4:]
    data[:at] = b"".join(found)


def _splice(data: bytearray, other: bytearray, chance: random.Random) -> None:
    """Records of another capture come between, of the same format; or that file follows as it is."""
    mine, its = places(data), places(other)
    if data[:4] != other[:4] or not mine or not its or chance.random() < 0.2:
        data += other
        return
    first = chance.randrange(len(its))
    chosen = its[first : first + chance.choice((1, 20, len(its)))]
    for each in chosen:
        at = chance.choice(mine).start
        data[at:at] = other[each.start : each.end]
        mine = [place for place in mine if place.start < at] or mine[:1]


_FIELDS = ((0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 3), (8, 8), *((at, 4) for at in range(16, _BHS_BYTES, 4)))
"""Fields of a basic header segment (RFC 7143 section 11.2): where, and how long."""
_DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_bytes, _cut, _words, _pieces),
    *(_records, _times, _lengths, _headers, _headers),
    *(_swaps, _swaps, _drift, _drift, _basic_headers, _basic_headers, _blocks),
)
