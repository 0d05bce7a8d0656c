"""iSCSI connections written packet by packet, each at a time in milliseconds: for values that are computed by hand.

Headers are written from the figures of RFC 7143. Nothing here computes a latency, a phase or a depth.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support.capture_file import Record, write_pcap
from tests.support.transport import ACK, ETHERNET, FIN, PSH, RST

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000
RESERVED = 0xFFFFFFFF
_PORTAL = 3260


def cdb(code: int, *, second: int = 0) -> bytes:
    """An operation code and byte 1; all else 0."""
    return bytes([code, second]).ljust(16, b"\0")


READ, WRITE, TEST_UNIT_READY = cdb(0x28), cdb(0x2A), cdb(0x00)


def pdu(opcode: int, flags: int, third: bytes, lun: bytes, tag: int, words: tuple[int, ...], data: bytes) -> bytes:
    """A PDU: `third` is bytes 2 and 3, `words` are those from byte 20 on."""
    header = bytes([opcode, flags]) + third + struct.pack("!I", len(data)) + lun
    header += struct.pack("!I", tag) + struct.pack(f"!{len(words)}I", *words)
    assert len(header) <= 48
    return header.ljust(48, b"\0") + data + bytes(-len(data) % 4)


def command(
    tag: int, text: bytes, *, cmd_sn: int, read: int = 0, write: int = 0, lun: int = 0, immediate: bytes = b""
) -> bytes:
    """A SCSI Command PDU: `read` or `write` is the Expected Data Transfer Length."""
    flags = 0x80 | 0x40 * bool(read) | 0x20 * bool(write)
    head = pdu(0x01, flags, b"\0\0", bytes([0, lun]) + bytes(6), tag, (read or write, cmd_sn, 1), immediate)
    return head[:32] + text + head[48:]


def data_in(tag: int, sequence: int, offset: int, length: int, *, stat_sn: int | None = None) -> bytes:
    """A Data-In PDU; with a StatSN it carries the status GOOD."""
    return data_in_with(tag, sequence, offset, bytes(length), stat_sn=stat_sn)


def data_in_with(tag: int, sequence: int, offset: int, data: bytes, *, stat_sn: int | None = None) -> bytes:
    """A Data-In PDU with this data."""
    flags = 0x81 if stat_sn is not None else 0
    return pdu(0x25, flags, b"\0\0", bytes(8), tag, (RESERVED, stat_sn or 0, 1, 64, sequence, offset, 0), data)


def data_out(tag: int, sequence: int, offset: int, length: int, *, transfer_tag: int = 1) -> bytes:
    """A Data-Out PDU."""
    return pdu(0x05, 0x80, b"\0\0", bytes(8), tag, (transfer_tag, 0, 1, 0, sequence, offset, 0), bytes(length))


def r2t(tag: int, sequence: int, offset: int, length: int) -> bytes:
    """A Ready To Transfer PDU."""
    return pdu(0x31, 0x80, b"\0\0", bytes(8), tag, (1, 1, 1, 64, sequence, offset, length), b"")


def response(tag: int, stat_sn: int, *, counted: int = 0, underflow: int = 0) -> bytes:
    """A SCSI Response PDU with the status GOOD: `counted` is ExpDataSN, `underflow` the residual count."""
    flags = 0x80 | 0x02 * bool(underflow)
    return pdu(0x21, flags, b"\0\0", bytes(8), tag, (0, stat_sn, 1, 64, counted, 0, underflow), b"")


def management(tag: int, function: int, *, cmd_sn: int, lun: int = 0, referenced: int = RESERVED) -> bytes:
    """A Task Management Function Request PDU, immediate."""
    return pdu(0x42, 0x80 | function, b"\0\0", bytes([0, lun]) + bytes(6), tag, (referenced, cmd_sn, 1, 0, 0), b"")


def management_response(tag: int, stat_sn: int, *, result: int = 0) -> bytes:
    """A Task Management Function Response PDU."""
    return pdu(0x22, 0x80, bytes([result, 0]), bytes(8), tag, (0, stat_sn, 1, 64), b"")


def login_request(keys: dict[str, str], *, cmd_sn: int = 1, handle: int = 0) -> bytes:
    """A Login Request PDU from the operational stage to the full feature phase; ISID 80 00 00 00 00 01."""
    text = "".join(f"{key}={value}\0" for key, value in keys.items()).encode()
    identity = bytes([0x80, 0, 0, 0, 0, 1]) + struct.pack("!H", handle)
    return pdu(0x43, 0x87, b"\0\0", identity, 0, (0, cmd_sn, 0), text)


def login_response(keys: dict[str, str], *, stat_sn: int = 0, handle: int = 1) -> bytes:
    """The Login Response PDU that ends the login."""
    text = "".join(f"{key}={value}\0" for key, value in keys.items()).encode()
    identity = bytes([0x80, 0, 0, 0, 0, 1]) + struct.pack("!H", handle)
    return pdu(0x23, 0x87, b"\0\0", identity, 0, (0, stat_sn, 1, 64, 0), text)


class Wire:
    """One TCP connection at the initiator's tap, captured from some time after its SYN on.

    A packet acknowledges all that came before, or less if that is given.
    """

    def __init__(self, port: int = 40_000) -> None:
        self.records: list[Record] = []
        self._port = port
        self._next = {True: 1000, False: 5000}

    def send(self, ms: float, *pdus: bytes, unacknowledged: int = 0) -> Wire:
        """PDUs of the initiator in one packet, which leaves this many bytes of the target unacknowledged."""
        return self._packet(ms, to_target=True, payload=b"".join(pdus), flags=PSH | ACK, unacknowledged=unacknowledged)

    def receive(self, ms: float, *pdus: bytes, unacknowledged: int = 0) -> Wire:
        """PDUs of the target in one packet."""
        return self._packet(ms, to_target=False, payload=b"".join(pdus), flags=PSH | ACK, unacknowledged=unacknowledged)

    def close(self, ms: float, *, is_reset: bool = False) -> Wire:
        """A FIN of the initiator, or an RST."""
        return self._packet(ms, to_target=True, payload=b"", flags=(RST if is_reset else FIN) | ACK)

    def _packet(self, ms: float, *, to_target: bool, payload: bytes, flags: int, unacknowledged: int = 0) -> Wire:
        own, other = self._next[to_target], self._next[not to_target]
        ports = (self._port, _PORTAL) if to_target else (_PORTAL, self._port)
        tcp = struct.pack("!HHIIBBHHH", *ports, own, other - unacknowledged, 5 << 4, flags, 65_535, 0, 0)
        addresses = (b"\xc0\x00\x02\x01", b"\xc0\x00\x02\x02")
        ends = addresses if to_target else addresses[::-1]
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 40 + len(payload), len(self.records), 0x4000, 64, 6, 0) + b"".join(ends)
        frame = bytes(12) + b"\x08\x00" + ip + tcp + payload
        self._next[to_target] = own + len(payload) + bool(flags & FIN)
        self.records.append(Record(START_NS + round(ms * MS), frame, len(frame)))
        return self


def capture(folder: Path, *wires: Wire) -> Path:
    """The packets of all connections in order of time."""
    records = sorted((record for wire in wires for record in wire.records), key=lambda record: record.time_ns)
    return write_pcap(folder / "capture.pcap", records, ETHERNET)
