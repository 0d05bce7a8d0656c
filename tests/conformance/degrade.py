"""What a capture lacks or has again: packets dropped, no begin, others first, recovery at ErrorRecoveryLevel 1.

Each function takes the records of a capture of our simulated world, at its initiator. None may make a rule appear
broken that the whole capture does not show.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from tests.support.capture_file import Record, write_pcapng
from tests.support.pdu import DATA_IN, crc32c
from tests.support.transport import Clock, Endpoint, Packet, Path, connect_ends

ETHERNET = 1
_IPV4_AT, _BHS_BYTES = 14, 48
_ISCSI_PORT = 3260
_SNACK, _SCSI_RESPONSE, _FULL_FEATURE = 0x10, 0x21, 3
_LOGINS = (0x03, 0x23)
_SYN = 2
_MS = 1_000_000


def without(records: Sequence[Record], number: int) -> list[Record]:
    """One packet is missing."""
    return [*records[:number], *records[number + 1 :]]


def begun_at(records: Sequence[Record], number: int) -> list[Record]:
    """The capture begins later."""
    return list(records[number:])


def thinned(records: Sequence[Record], seed: int, share: float = 0.8) -> list[Record]:
    """A random share of the packets."""
    chance = random.Random(seed)  # noqa: S311 (repeatable, not secret)
    return [record for record in records if chance.random() < share]


def exchanged(records: Sequence[Record], seed: int, share: float = 0.05) -> list[Record]:
    """Some packets have changed places with the next one, as a tap of several queues writes them."""
    chance = random.Random(seed)  # noqa: S311 (repeatable, not secret)
    found = list(records)
    for place in range(len(found) - 1):
        if chance.random() < share:
            found[place], found[place + 1] = found[place + 1], found[place]
    return found


@dataclass(frozen=True)
class _Sent:
    """A PDU on the wire, and when its last byte was captured."""

    time_ns: int
    to_target: bool
    data: bytes

    @property
    def opcode(self) -> int:
        return self.data[0] & 0x3F


def _pdus(records: Sequence[Record]) -> list[_Sent]:
    """The PDUs of a capture of one connection without loss, in order of time. Digests as the login agreed, which
    begins and ends in it: both, or none.
    """
    found: list[_Sent] = []
    streams: dict[bool, bytearray] = {True: bytearray(), False: bytearray()}
    firsts: dict[bool, int] = {}
    has_digests = {True: False, False: False}
    is_agreed = False
    for record in records:
        tcp = _IPV4_AT + (record.data[_IPV4_AT] & 15) * 4
        to_target = int.from_bytes(record.data[tcp + 2 : tcp + 4]) == _ISCSI_PORT
        sequence_number = int.from_bytes(record.data[tcp + 4 : tcp + 8])
        if record.data[tcp + 13] & _SYN:
            firsts[to_target] = sequence_number + 1
            continue
        end = _IPV4_AT + int.from_bytes(record.data[_IPV4_AT + 2 : _IPV4_AT + 4])
        payload = record.data[tcp + (record.data[tcp + 12] >> 4) * 4 : end]
        stream = streams[to_target]
        if not payload:
            continue
        place = (sequence_number - firsts[to_target]) % 2**32
        taken = sum(len(each.data) for each in found if each.to_target == to_target)
        assert place == taken + len(stream), "not in order"
        stream += payload
        while len(stream) >= _BHS_BYTES:
            length = int.from_bytes(stream[5:8])
            extra = 4 * (1 + (length > 0)) if has_digests[to_target] else 0
            whole = _BHS_BYTES + (length + 3 & ~3) + extra
            if len(stream) < whole:
                break
            pdu = _Sent(record.time_ns, to_target, bytes(stream[:whole]))
            del stream[:whole]
            found.append(pdu)
            is_agreed |= b"HeaderDigest=CRC32C" in pdu.data and not to_target
            if pdu.opcode == _LOGINS[1] and pdu.data[1] & 0x83 == 0x80 | _FULL_FEATURE:
                has_digests = dict.fromkeys(has_digests, is_agreed)
    return found


def _sent_again(pdus: Sequence[_Sent], records: Sequence[Record]) -> list[Packet]:
    """Captures PDUs anew, each in segments of its own, at the initiator."""
    tap: list[Packet] = []
    clock = Clock(records[0].time_ns)
    # a little shorter than the path of the capture, so that each end sends when it did, after what it had got
    path = Path(one_way_delay_ns=_MS * 9 // 10, rate_bits_per_s=100 * 10**9)
    lead_ns = _MS * 95 // 100
    ends = [
        Endpoint(clock, path, 0, to_target, 1000, 1, 40_000 if to_target else _ISCSI_PORT)
        for to_target in (True, False)
    ]
    connect_ends(ends[0], ends[1], tap)
    for end in ends:
        end.on_bytes = lambda _: None
    ends[0].connect(lambda: None)
    for pdu in pdus:
        end = ends[0] if pdu.to_target else ends[1]
        sent_ns = pdu.time_ns - (0 if pdu.to_target else lead_ns)
        clock.at(sent_ns, lambda end=end, data=pdu.data: end.write(data, [0]))  # type: ignore[misc]
    clock.run()
    return tap


def recovered(records: Sequence[Record], *, is_lost: bool) -> list[Packet]:
    """The capture of a read at ErrorRecoveryLevel 1, where the second Data-In of a read got a wrong digest (or never
    came), and was asked for by SNACK and sent again. Needs reads of several Data-In, digests, and ``status=apart``.
    """
    pdus = _pdus(records)
    reads = [
        place for place, pdu in enumerate(pdus) if pdu.opcode == DATA_IN and pdu.data[36:40] == bytes([0, 0, 0, 1])
    ]
    place = reads[len(reads) // 2]
    data_in = pdus[place]
    answer = next(at for at in range(place, len(pdus)) if pdus[at].opcode == _SCSI_RESPONSE)
    spoiled = data_in.data[:-1] + bytes([data_in.data[-1] ^ 0xFF])
    exp_stat_sn = pdus[answer].data[24:28]
    header = bytes([_SNACK, 0x80]) + bytes(14) + data_in.data[16:20] + b"\xff" * 4 + bytes(4) + exp_stat_sn + bytes(8)
    header += (1).to_bytes(4) + (1).to_bytes(4)
    assert len(header) == _BHS_BYTES
    late_ns = 4 * _MS
    at_ns = pdus[answer].time_ns
    snack = _Sent(at_ns, to_target=True, data=header + crc32c(header))
    again = _Sent(at_ns + 2 * _MS + _MS // 2, to_target=False, data=data_in.data)
    first = [] if is_lost else [_Sent(data_in.time_ns, to_target=False, data=spoiled)]
    later = [_Sent(pdu.time_ns + late_ns, pdu.to_target, pdu.data) for pdu in pdus[answer:]]
    return _sent_again([*pdus[:place], *first, *pdus[place + 1 : answer], snack, again, *later], records)


def written(file: FilePath, records: Sequence[Record | Packet]) -> FilePath:
    """The records as a capture file."""
    return write_pcapng(file, records, ETHERNET)
