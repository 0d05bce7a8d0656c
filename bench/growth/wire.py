"""Packets of iSCSI connections, one PDU in each, for captures of which only the counts matter.

Both ends are alone on their network: no ACK is late and nothing is lost unless a family says so. TCP checksums are 0,
as a host with checksum offload captures them. Nothing here is a model of a host: `tests/support/conversation.py` is.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

from tests.support.capture_file import Record, block, write_pcap
from tests.support.pdu import DATA_IN, LOGIN_REQUEST, LOGIN_RESPONSE, RESERVED_TAG, SCSI_COMMAND, SCSI_RESPONSE
from tests.support.transport import ACK, ETHERNET, FIN, SYN

TEXT_REQUEST, TEXT_RESPONSE, TASK_MANAGEMENT, TASK_MANAGEMENT_RESPONSE = 0x04, 0x24, 0x02, 0x22
FINAL, READ, WRITE, SIMPLE = 0x80, 0x40, 0x20, 1
STATUS_IN_DATA = 0x81
STEP_NS = 1_000_000
"""From one packet to the next."""
TARGET = 0xC0000201
Fields = dict[int, int]
"""Numbers of a header, by the place of their four bytes."""


class Capture:
    """Packets in the order in which they were captured."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000_000_000_000
        self.packets: list[Record] = []

    def add(self, frame: bytes) -> None:
        """A packet that is captured now."""
        self.packets.append(Record(self.now_ns, frame, len(frame)))
        self.now_ns += STEP_NS

    def write(self, file: Path) -> Path:
        """The packets as a pcap file."""
        return write_pcap(file, self.packets, ETHERNET)

    def move(self, chance: random.Random, places: int) -> None:
        """Every tenth packet is captured up to so many places late, as with several queues."""
        keys = [place + (chance.randrange(places) if place % 10 == 0 else 0) for place in range(len(self.packets))]
        self.packets = [self.packets[place] for place in sorted(range(len(keys)), key=keys.__getitem__)]


class Connection:
    """One TCP connection of a host, and the numbers of its iSCSI session."""

    def __init__(self, capture: Capture, number: int, *, target: int = TARGET) -> None:
        self.capture = capture
        host, port = divmod(number, 50_000)
        self._ends = [(0x0A000001 + host, 10_000 + port), (target, 3260)]
        self._sent = [1, 1]
        self.cmd_sn, self.stat_sn = 1, 1

    def packet(self, to_target: bool, flags: int, payload: bytes = b"", *, is_lost: bool = False) -> None:
        """The next packet of a side; a lost one is sent, and not captured."""
        side = 0 if to_target else 1
        acknowledged = self._sent[1 - side] if flags & ACK else 0
        self._keep(side, self._sent[side], acknowledged, flags, payload, is_lost)
        self._sent[side] += len(payload) + bool(flags & SYN)

    def again(self, to_target: bool, payload: bytes, flags: int = ACK) -> None:
        """A packet with the bytes that were sent last."""
        side = 0 if to_target else 1
        self._keep(side, self._sent[side] - len(payload), self._sent[1 - side], flags, payload, False)

    def _keep(self, side: int, sequence: int, acknowledged: int, flags: int, payload: bytes, is_lost: bool) -> None:
        (source, source_port), (destination, destination_port) = self._ends[side], self._ends[1 - side]
        length = 40 + len(payload)
        ip = struct.pack("!BBHHHBBHII", 0x45, 0, length, 1, 0x4000, 64, 6, 0, source, destination)
        numbers = (sequence & 0xFFFFFFFF, acknowledged & 0xFFFFFFFF)
        tcp = struct.pack("!HHIIBBHHH", source_port, destination_port, *numbers, 0x50, flags, 65_535, 0, 0)
        if not is_lost:
            self.capture.add(bytes(12) + b"\x08\x00" + ip + tcp + payload)

    def open(self) -> Connection:
        """The handshake."""
        self.packet(True, SYN)
        self.packet(False, SYN | ACK)
        self.packet(True, ACK)
        return self

    def close(self) -> None:
        """A FIN of each side."""
        self.packet(True, FIN | ACK)
        self.packet(False, FIN | ACK)

    def pdu(
        self,
        opcode: int,
        flags: int,
        tag: int,
        fields: Fields,
        *,
        lun: int = 0,
        data: bytes = b"",
        cdb: bytes = b"",
        own: bytes = b"",
    ) -> bytes:
        """A PDU; `own` are the bytes 2 and 3."""
        header = bytearray(48)
        header[0:2] = bytes([opcode, flags])
        header[2 : 2 + len(own)] = own
        header[4:8] = struct.pack("!I", len(data))
        header[8:16] = struct.pack("!HHI", lun, 0, 0)
        header[16:20] = struct.pack("!I", tag)
        for place, value in fields.items():
            header[place : place + 4] = struct.pack("!I", value & 0xFFFFFFFF)
        header[32 : 32 + len(cdb)] = cdb
        return bytes(header) + data + bytes(-len(data) % 4)

    def send(self, to_target: bool, pdu: bytes) -> None:
        """A packet of one PDU."""
        self.packet(to_target, ACK, pdu)

    def _numbers(self) -> Fields:
        return {24: self.stat_sn, 28: self.cmd_sn, 32: self.cmd_sn + 0x1000}

    def log_in(
        self, *, host: str = "host", target: str = "target", isid: int = 1, status: int = 0, cid: int = 0
    ) -> Connection:
        """The handshake and a login of one request; `status` is class and detail of the answer. A connection with a
        `cid` joins the session of the one that has none.
        """
        self.open()
        named = f"InitiatorName=iqn.2020-01.a:{host}\0SessionType=Normal\0TargetName=iqn.2020-01.b:{target}\0".encode()
        request = bytearray(self.pdu(0x40 | LOGIN_REQUEST, 0x87, 0, {24: self.cmd_sn, 28: 0}, data=named))
        answer_data = b"TargetPortalGroupTag=1\0"
        answer = bytearray(self.pdu(LOGIN_RESPONSE, 0x87, 0, self._numbers(), data=answer_data))
        for header in (request, answer):
            header[8:14] = struct.pack("!BBI", 0x40, 0, isid)
        answer[14:16] = b"\0\1"
        if cid:
            request[14:16], request[20:22] = b"\0\1", struct.pack("!H", cid)
        answer[36:38] = struct.pack("!H", status)
        self.send(True, bytes(request))
        self.send(False, bytes(answer))
        self.stat_sn += 1
        return self

    def command(self, tag: int, *, lun: int = 0, lba: int = 0, cdb: bytes = b"", length: int = 512) -> None:
        """A read of one block, or another command that reads."""
        cdb = cdb or struct.pack("!BBIBHB", 0x28, 0, lba, 0, 1, 0)
        fields = {20: length, 24: self.cmd_sn, 28: self.stat_sn}
        self.send(True, self.pdu(SCSI_COMMAND, FINAL | READ | SIMPLE, tag, fields, lun=lun, cdb=cdb))
        self.cmd_sn += 1

    def write(self, tag: int, lba: int, *, lun: int = 0) -> None:
        """A write of one block with immediate data, and its answer."""
        fields = {20: 512, 24: self.cmd_sn, 28: self.stat_sn}
        cdb = struct.pack("!BBIBHB", 0x2A, 0, lba, 0, 1, 0)
        data = lba.to_bytes(4, "big") * 128
        self.send(True, self.pdu(SCSI_COMMAND, FINAL | WRITE | SIMPLE, tag, fields, lun=lun, cdb=cdb, data=data))
        self.cmd_sn += 1
        self.response(tag)

    def answer(self, tag: int, data: bytes = bytes(512)) -> None:
        """Data-In with a good status."""
        fields = {20: RESERVED_TAG, **self._numbers()}
        self.send(False, self.pdu(DATA_IN, STATUS_IN_DATA, tag, fields, data=data))
        self.stat_sn += 1

    def response(self, tag: int, *, status: int = 0, sense: bytes = b"") -> None:
        """A SCSI Response."""
        data = struct.pack("!H", len(sense)) + sense if sense else b""
        pdu = self.pdu(SCSI_RESPONSE, FINAL, tag, self._numbers(), data=data, own=bytes([0, status]))
        self.send(False, pdu)
        self.stat_sn += 1

    def read(self, tag: int, *, lun: int = 0, lba: int = 0) -> None:
        """A read of one block, and its answer."""
        self.command(tag, lun=lun, lba=lba)
        self.answer(tag)

    def asked(self, tag: int, cdb: bytes, data: bytes, *, lun: int = 0) -> None:
        """A command that asks for parameter data, and the data."""
        self.command(tag, lun=lun, cdb=cdb, length=len(data))
        self.answer(tag, data)

    def reset(self, tag: int, *, lun: int) -> None:
        """LOGICAL UNIT RESET, and that it is complete."""
        fields = {20: RESERVED_TAG, 24: self.cmd_sn, 28: self.stat_sn}
        self.send(True, self.pdu(0x40 | TASK_MANAGEMENT, 0x85, tag, fields, lun=lun))
        self.send(False, self.pdu(TASK_MANAGEMENT_RESPONSE, FINAL, tag, self._numbers()))
        self.stat_sn += 1

    def text(self, tag: int, text: bytes) -> None:
        """A Text Request, and an empty answer."""
        fields = {20: RESERVED_TAG, 24: self.cmd_sn, 28: self.stat_sn}
        self.send(True, self.pdu(TEXT_REQUEST, FINAL, tag, fields, data=text))
        self.cmd_sn += 1
        self.send(False, self.pdu(TEXT_RESPONSE, FINAL, tag, {20: RESERVED_TAG, **self._numbers()}))
        self.stat_sn += 1


def block_of(packet: Record, interface: int = 0) -> bytes:
    """A packet in a pcapng file, with microseconds."""
    ticks, length = packet.time_ns // 1000, packet.original_length
    fields = struct.pack("<IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, length, length)
    return block(6, fields + packet.data)


def at_the_target(file: Path) -> Path:
    """The packets of a pcap file as a tap at the target has them: later to it, earlier from it."""
    content, at = bytearray(file.read_bytes()), 24
    while at < len(content):
        seconds, rest_ns, length = struct.unpack_from("<III", content, at)
        is_to_target = content[at + 52 : at + 54] == struct.pack("!H", 3260)
        time_ns = seconds * 1_000_000_000 + rest_ns + (STEP_NS // 10 if is_to_target else -STEP_NS // 10)
        struct.pack_into("<II", content, at, *divmod(time_ns, 1_000_000_000))
        at += 16 + length
    made = file.with_suffix(".target.pcap")
    made.write_bytes(content)
    return made
