"""Families of captures: one for each count that an input can have, with everything else constant.

Each is a function of the count that adds its packets. The count of `sizes` is the smallest that is measured; the
largest is eight times as much.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.growth.wire import Capture, Connection, block_of
from tests.support.capture_file import block, write_pcap
from tests.support.pdu import DATA_IN, NOP_IN, NOP_OUT, R2T, RESERVED_TAG
from tests.support.transport import ACK, ETHERNET, FIN, SYN

SECOND_NS = 1_000_000_000
REFUSED = 0x0203
"""Login status: not found."""


@dataclass(frozen=True)
class Family:
    """Captures that differ in one count."""

    build: Callable[[Capture, int], None]
    least: int
    """The count of the smallest."""

    def write(self, file: Path, count: int) -> Path:
        """The capture with that count."""
        capture = Capture()
        self.build(capture, count)
        return capture.write(file)


FAMILIES: dict[str, Family] = {}


def family(least: int) -> Callable[[Callable[[Capture, int], None]], Callable[[Capture, int], None]]:
    def add(build: Callable[[Capture, int], None]) -> Callable[[Capture, int], None]:
        FAMILIES[build.__name__] = Family(build, least)
        return build

    return add


def scanned(connection: Connection, *, lun: int = 0, name: int = 1, states: dict[int, int] | None = None) -> None:
    """The identity of a logical unit, and the states of its target port groups."""
    naa = struct.pack("!QQ", 0x6001405A00000000, name)
    page = bytes([1, 3, 0, 16]) + naa + bytes([1, 0x94, 0, 4, 0, 0, 0, 1, 1, 0x95, 0, 4, 0, 0, 0, 1])
    connection.asked(1, bytes([0x12, 1, 0x83, 0, 255, 0]), struct.pack("!BBH", 0, 0x83, len(page)) + page, lun=lun)
    if states:
        _groups(connection, states, lun=lun)


def _groups(connection: Connection, states: dict[int, int], *, lun: int = 0) -> None:
    groups = b"".join(struct.pack("!BBHI", state, 0x0F, group, 0) for group, state in states.items())
    cdb = bytes([0xA3, 0x0A]) + bytes(4) + struct.pack("!I", len(groups) + 4) + bytes(2)
    connection.asked(2, cdb, struct.pack("!I", len(groups)) + groups, lun=lun)


@family(1000)
def commands(capture: Capture, count: int) -> None:
    """Reads of one session, one after the other."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.read(2 + number % 100, lba=number)


@family(1000)
def tags(capture: Capture, count: int) -> None:
    """Reads with a new tag each, of which one in two has no answer."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.command(2 + number, lba=number)
        if number % 2:
            connection.answer(2 + number)


@family(100)
def sessions(capture: Capture, count: int) -> None:
    """Sessions of hosts of their own, open at once."""
    connections = [Connection(capture, number).log_in(host=f"host{number}", isid=number) for number in range(count)]
    for number in range(4):
        for connection in connections:
            connection.read(2, lba=number)


@family(100)
def sessions_in_turn(capture: Capture, count: int) -> None:
    """Sessions of one host, one after the other, closed."""
    for number in range(count):
        connection = Connection(capture, number).log_in(isid=number)
        connection.read(2)
        connection.close()


@family(100)
def replaced_sessions(capture: Capture, count: int) -> None:
    """Sessions that replace each other after a command that hung."""
    for number in range(count):
        connection = Connection(capture, number).log_in()
        for lba in range(3):
            connection.read(2 + lba, lba=lba)
        connection.command(9, lba=9)
        capture.now_ns += 2 * SECOND_NS
        connection.answer(9)
        capture.now_ns += SECOND_NS


@family(100)
def lost_sessions(capture: Capture, count: int) -> None:
    """Sessions that replace each other after a reset of the connection, with a command in flight."""
    for number in range(count):
        connection = Connection(capture, number).log_in()
        connection.read(2)
        connection.command(9, lba=9)
        capture.now_ns += 2 * SECOND_NS
        connection.packet(False, 0x14)
        capture.now_ns += SECOND_NS


@family(100)
def connections_of_a_session(capture: Capture, count: int) -> None:
    """Connections of one session, with a read each in turn."""
    connections = [Connection(capture, number).log_in(cid=number) for number in range(count)]
    for turn in range(4):
        for place, connection in enumerate(connections):
            connection.cmd_sn = 1 + turn * count + place
            connection.read(connection.cmd_sn, lba=connection.cmd_sn)


@family(500)
def connections_of_one_packet(capture: Capture, count: int) -> None:
    """Commands in the middle of a connection each."""
    for number in range(count):
        Connection(capture, number).command(1, cdb=struct.pack("!BBIBHB", 0x28, 0, 8, 0, 1, 0))


@family(2000)
def unanswered_syns(capture: Capture, count: int) -> None:
    """SYNs that nobody answers."""
    for number in range(count):
        Connection(capture, number).packet(True, SYN)


@family(100)
def reused_ports(capture: Capture, count: int) -> None:
    """Connections between the same ports, one after the other."""
    for number in range(count):
        connection = Connection(capture, 0).log_in(isid=number)
        connection.read(2)
        connection.close()


@family(200)
def login_tries(capture: Capture, count: int) -> None:
    """Logins that the target refuses."""
    for number in range(count):
        connection = Connection(capture, number).log_in(status=REFUSED)
        connection.packet(False, FIN | ACK)
        capture.now_ns += SECOND_NS // 10


@family(100)
def login_tries_at_targets(capture: Capture, count: int) -> None:
    """The same, at a target of its own each."""
    for number in range(count):
        connection = Connection(capture, number, target=0xC0000201 + number)
        connection.log_in(target=f"target{number}", status=REFUSED)
        connection.packet(False, FIN | ACK)


@family(200)
def logical_units(capture: Capture, count: int) -> None:
    """Logical units of one session."""
    connection = Connection(capture, 0).log_in()
    for lun in range(count):
        scanned(connection, lun=lun, name=lun)
        connection.read(3, lun=lun)


@family(100)
def volumes_of_one_name(capture: Capture, count: int) -> None:
    """Sessions with hosts of their own, to volumes with equal designators."""
    for number in range(count):
        connection = Connection(capture, number).log_in(host=f"host{number}", isid=number)
        scanned(connection)
        connection.read(3)


@family(50)
def alua_paths(capture: Capture, count: int) -> None:
    """Sessions of one host to one volume, whose states change."""
    paths = [Connection(capture, number).log_in(isid=number) for number in range(count)]
    for path in paths:
        scanned(path, states={1: 0, 2: 1})
    for states in ({1: 1, 2: 0}, {1: 0, 2: 1}):
        for path in paths:
            path.read(3)
            _groups(path, states)


@family(100)
def port_groups(capture: Capture, count: int) -> None:
    """Target port groups, in answers of 50."""
    connection = Connection(capture, 0).log_in()
    for first in range(0, count, 50):
        _groups(connection, dict.fromkeys(range(first, min(first + 50, count)), 0))


@family(4)
def port_groups_byte_by_byte(capture: Capture, count: int) -> None:
    """Answers of 400 target port groups, each byte of the last three quarters in a Data-In PDU of its own."""
    connection = Connection(capture, 0).log_in()
    groups = b"".join(struct.pack("!BBHI", 0, 0x0F, group, 0) for group in range(400))
    data, begun = struct.pack("!I", len(groups)) + groups, 800
    for number in range(count):
        cdb = bytes([0xA3, 0x0A]) + bytes(4) + struct.pack("!I", len(data)) + bytes(2)
        connection.command(2 + number, cdb=cdb, length=len(data))
        for start, end in ((0, begun), *((each, each + 1) for each in range(begun, len(data)))):
            fields = {20: RESERVED_TAG, 28: connection.cmd_sn, 32: connection.cmd_sn + 9, 36: 0, 40: start}
            connection.send(False, connection.pdu(DATA_IN, 0, 2 + number, fields, data=data[start:end]))
        connection.response(2 + number)


@family(1000)
def lun_resets(capture: Capture, count: int) -> None:
    """Resets of a logical unit without tasks, beside open tasks of another."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.command(2 + number, lba=number)
    for number in range(count):
        connection.reset(0x10000000 + number, lun=3)


@family(500)
def tasks_that_resets_end(capture: Capture, count: int) -> None:
    """Commands that a reset of their logical unit ends each."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.command(2 + number, lun=number % 1000, lba=number)
        connection.reset(0x10000000 + number, lun=number % 1000)


@family(500)
def text_keys(capture: Capture, count: int) -> None:
    """Text exchanges with a long key of its own each."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.text(2 + number, b"X-key%d=" % number + b"v" * 1000 + b"\0")


@family(500)
def check_conditions(capture: Capture, count: int) -> None:
    """Commands that fail, each with an event."""
    connection = Connection(capture, 0).log_in()
    sense = bytes([0x70, 0, 3, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0])
    for number in range(count):
        connection.command(2, lba=number)
        connection.response(2, status=2, sense=sense)


@family(300)
def hangs(capture: Capture, count: int) -> None:
    """Commands that take two seconds, with nothing else in flight."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.command(2, lba=number)
        capture.now_ns += 2 * SECOND_NS
        connection.answer(2)


@family(1000)
def nops(capture: Capture, count: int) -> None:
    """NOP-Outs that the target answers late."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        fields = {20: RESERVED_TAG, 24: connection.cmd_sn, 28: connection.stat_sn}
        connection.send(True, connection.pdu(0x40 | NOP_OUT, 0x80, 2 + number, fields))
        if number % 2:
            fields = {20: RESERVED_TAG, 24: connection.stat_sn, 28: connection.cmd_sn, 32: connection.cmd_sn + 9}
            connection.send(False, connection.pdu(NOP_IN, 0x80, 2 + number, fields))
            connection.stat_sn += 1


@family(500)
def breaches(capture: Capture, count: int) -> None:
    """Responses that break RFC 7143: one in two has the StatSN of the one before."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.command(2, lba=number)
        connection.response(2)
        connection.stat_sn -= number % 2


@family(500)
def rounds(capture: Capture, count: int) -> None:
    """R2Ts of one command."""
    connection = Connection(capture, 0).log_in()
    fields = {20: 512 * count, 24: connection.cmd_sn, 28: connection.stat_sn}
    cdb = struct.pack("!BBIBHB", 0x2A, 0, 0, 0, min(count, 0xFFFF), 0)
    connection.send(True, connection.pdu(0x01, 0xA1, 2, fields, cdb=cdb))
    connection.cmd_sn += 1
    for number in range(count):
        numbers = {24: connection.stat_sn, 28: connection.cmd_sn, 32: connection.cmd_sn + 9}
        ask = {20: number, **numbers, 36: number, 40: number * 512, 44: 512}
        connection.send(False, connection.pdu(R2T, 0x80, 2, ask))
        sent = {20: number, 28: connection.stat_sn, 36: 0, 40: number * 512}
        connection.send(True, connection.pdu(0x05, 0x80, 2, sent, data=bytes(512)))
    connection.response(2)


@family(1000)
def data_in(capture: Capture, count: int) -> None:
    """Data-In PDUs of one command, of which one in two is missing: as many holes in its buffer."""
    connection = Connection(capture, 0).log_in()
    connection.command(2, length=512 * count)
    for number in range(count):
        fields = {20: RESERVED_TAG, 28: connection.cmd_sn, 32: connection.cmd_sn + 9, 36: number, 40: number * 512}
        pdu = connection.pdu(DATA_IN, 0, 2, fields, data=bytes(512))
        connection.packet(False, ACK, pdu, is_lost=number % 2 == 1)
    connection.response(2)


@family(500)
def holes(capture: Capture, count: int) -> None:
    """Packets that the capture missed, between others of one direction."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.command(2 + number % 50, lba=number)
        fields = {20: RESERVED_TAG, 24: connection.stat_sn, 28: connection.cmd_sn, 32: connection.cmd_sn + 9}
        pdu = connection.pdu(DATA_IN, 0x81, 2 + number % 50, fields, data=bytes(512))
        connection.packet(False, ACK, pdu, is_lost=number % 3 == 0)
        connection.stat_sn += 1


@family(500)
def recoveries(capture: Capture, count: int) -> None:
    """Packets that the network lost behind the tap: each is there again after 0.3 s."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.command(2, lba=number)
        fields = {20: RESERVED_TAG, 24: connection.stat_sn, 28: connection.cmd_sn, 32: connection.cmd_sn + 9}
        pdu = connection.pdu(DATA_IN, 0x81, 2, fields, data=bytes(512))
        connection.packet(False, ACK, pdu)
        capture.now_ns += 3 * SECOND_NS // 10
        connection.again(False, pdu)
        connection.packet(True, ACK)
        connection.stat_sn += 1


@family(60)
def partial_losses(capture: Capture, count: int) -> None:
    """Sessions of one host, half of which lose a command at the same time, again and again."""
    connections = [Connection(capture, number).log_in(isid=number) for number in range(count)]
    for turn in range(4):
        for number, connection in enumerate(connections):
            connection.command(2, lba=turn)
            if number % 2:
                connection.answer(2)
        capture.now_ns += 3 * SECOND_NS
        for connection in connections[::2]:
            connection.answer(2)


@family(300)
def mirrored_writes(capture: Capture, count: int) -> None:
    """Writes that two targets get."""
    sides = [Connection(capture, side, target=0xC0000201 + side).log_in(target=f"t{side}") for side in (0, 1)]
    for number in range(count):
        for side in sides:
            side.write(2, 8 * number)


@family(20)
def mirrors(capture: Capture, count: int) -> None:
    """Pairs of sessions that get the same writes."""
    sides = [
        Connection(capture, number, target=0xC0000201 + number).log_in(host=f"h{number // 2}", target=f"t{number}")
        for number in range(2 * count)
    ]
    for number in range(20):
        for place, side in enumerate(sides):
            side.write(2, 8 * (number + 100 * (place // 2)))


@family(200)
def clock_jumps(capture: Capture, count: int) -> None:
    """A clock that is set forward by an hour, and back, again and again."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.read(2, lba=number)
        capture.now_ns += 3600 * SECOND_NS * (1 if number % 2 else -1)


@family(200)
def hours(capture: Capture, count: int) -> None:
    """A read each hour."""
    connection = Connection(capture, 0).log_in()
    for number in range(count):
        connection.read(2, lba=number)
        capture.now_ns += 3600 * SECOND_NS


@dataclass(frozen=True)
class _OutOfOrder(Family):
    def write(self, file: Path, count: int) -> Path:
        capture = Capture()
        self.build(capture, count)
        capture.move(random.Random(1), 20)
        return capture.write(file)


FAMILIES["capture_order"] = _OutOfOrder(commands, 500)


@dataclass(frozen=True)
class _Interfaces(Family):
    """A pcapng file with that many interfaces, and a packet of each."""

    def write(self, file: Path, count: int) -> Path:
        capture = Capture()
        self.build(capture, count)
        with file.open("wb") as out:
            out.write(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
            for number in range(count):
                name = b"eth%05d" % number
                out.write(block(1, struct.pack("<HHI", 1, 0, 262_144) + struct.pack("<HH", 2, len(name)) + name))
            for number, packet in enumerate(capture.packets):
                out.write(block_of(packet, number % count))
        return file


FAMILIES["interfaces"] = _Interfaces(commands, 1000)


@dataclass(frozen=True)
class _Files(Family):
    """A folder with that many files of a ring, each with the packets of four reads."""

    def write(self, file: Path, count: int) -> Path:
        capture = Capture()
        self.build(capture, 4 * count)
        file.mkdir()
        each = -(-len(capture.packets) // count)
        for number in range(count):
            packets = capture.packets[number * each : (number + 1) * each]
            write_pcap(file / f"eth0_{number + 1:05}_20231114221320.pcap", packets, ETHERNET)
        return file


FAMILIES["files"] = _Files(commands, 25)
LACKING = {
    "files": ("watch", "anonymise", "sidecar", "diff", "taps"),
    "interfaces": ("taps",),
}
"""Commands that do not take the captures of a family: a folder, or one that `at_the_target` cannot read."""
