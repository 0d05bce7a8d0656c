"""Families of captures with many hosts, to which the same happens: what one of them shows may depend on all."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from bench.growth.families import FAMILIES, LACKING, SECOND_NS, Family, family, scanned
from bench.growth.wire import Capture, Connection, block_of
from tests.support.capture_file import block

__all__ = ["FAMILIES"]

RESERVATION_CONFLICT, CHECK_CONDITION = 0x18, 0x02
RST_ACK = 0x14
OUT_OF_RANGE = bytes([0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0])


def _hosts(capture: Capture, count: int) -> list[Connection]:
    """Sessions of hosts of their own, with a read each."""
    connections = [Connection(capture, number).log_in(host=f"host{number}", isid=number) for number in range(count)]
    for connection in connections:
        connection.read(2)
    return connections


@family(100)
def sessions_of_two_ages(capture: Capture, count: int) -> None:
    """Sessions of hosts of their own, half of which are 80 years later: a wrong clock was set."""
    for number in range(count):
        if number == count // 2:
            capture.now_ns += 80 * 365 * 86_400 * SECOND_NS
        connection = Connection(capture, number).log_in(host=f"host{number}", isid=number)
        for lba in range(4):
            connection.read(2, lba=lba)


@family(50)
def resets_of_sessions(capture: Capture, count: int) -> None:
    """Sessions of hosts of their own, each with a command that a reset of its logical unit ends."""
    connections = [Connection(capture, number).log_in(host=f"host{number}", isid=number) for number in range(count)]
    for connection in connections:
        connection.read(2)
        connection.command(3)
    capture.now_ns += 3 * SECOND_NS
    for connection in connections:
        connection.reset(4, lun=0)


@family(100)
def sessions_lost_together(capture: Capture, count: int) -> None:
    """Sessions that the target resets at the same time, with a command in flight each."""
    connections = _hosts(capture, count)
    for connection in connections:
        connection.command(3)
    for connection in connections:
        connection.packet(False, RST_ACK)
        capture.now_ns -= 999_999


@family(100)
def reservation_conflicts(capture: Capture, count: int) -> None:
    """Hosts that reserve a logical unit in turn, of which the target refuses a read."""
    for number, connection in enumerate(_hosts(capture, count)):
        is_taken = number % 2 == 1
        connection.command(3, cdb=bytes([0x5F, 1, 1, 0, 0, 0, 0, 0, 24, 0]) if is_taken else b"")
        connection.response(3, status=0 if is_taken else RESERVATION_CONFLICT)


@family(50)
def blocks_out_of_range(capture: Capture, count: int) -> None:
    """Hosts that read beyond the end of a logical unit whose size they asked for."""
    for connection in _hosts(capture, count):
        connection.asked(3, bytes([0x25]) + bytes(9), struct.pack("!II", 1000, 512))
        connection.command(4, lba=5000)
        connection.response(4, status=CHECK_CONDITION, sense=OUT_OF_RANGE)


@family(100)
def portals_that_some_reach(capture: Capture, count: int) -> None:
    """Hosts that reach a portal, and as many that do not."""
    _hosts(capture, count)
    for number in range(count):
        Connection(capture, 50_000 * (number + 1)).packet(True, 0x02)
    capture.now_ns += 30 * SECOND_NS
    Connection(capture, 49_999).log_in().read(2)


@family(25)
def paths_lost(capture: Capture, count: int) -> None:
    """Hosts with two paths to one volume, of which one is reset with a command in flight, which the other one runs."""
    paths = [Connection(capture, number).log_in(host=f"host{number // 2}", isid=number) for number in range(2 * count)]
    for path in paths:
        scanned(path)
        path.read(3)
    for number, path in enumerate(paths[::2]):
        path.command(4, lba=number)
    capture.now_ns += 2 * SECOND_NS
    for number, path in enumerate(paths[::2]):
        path.packet(False, RST_ACK)
        paths[2 * number + 1].read(4, lba=number)


def _one_after_the_other(capture: Capture, count: int) -> None:
    """Sessions of one host and one port."""
    for _ in range(count):
        connection = Connection(capture, 0).log_in()
        connection.read(2)
        connection.close()
        capture.now_ns += SECOND_NS


@dataclass(frozen=True)
class _Sampled(Family):
    """A pcapng file with samples of TCP_INFO: eight of each end of each connection."""

    is_one_port: bool = False

    def write(self, file: Path, count: int) -> Path:
        capture = Capture()
        self.build(capture, count)
        begun_ns, ended_ns = capture.packets[0].time_ns, capture.now_ns
        with file.open("wb") as out:
            out.write(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
            out.write(block(1, struct.pack("<HHI", 1, 0, 262_144)))
            out.writelines(map(block_of, capture.packets))
            for number in range(8 * count):
                time_ns = begun_ns + (ended_ns - begun_ns) * number // (8 * count)
                ends = f"10.0.0.1:{10_000 + number % (1 if self.is_one_port else count)}", "192.0.2.1:3260"
                out.writelines(
                    _sample(time_ns, *each, (time_ns - begun_ns) // 1_000_000) for each in (ends, ends[::-1])
                )
        return file


def _sample(time_ns: int, local: str, remote: str, busy_ms: int) -> bytes:
    """A block of the journal as `iscsitrace capture` writes it."""
    sample = f"ESTAB 0 0 {local} {remote} cubic mss:1448 cwnd:10 busy:{busy_ms}ms rwnd_limited:{busy_ms // 2}ms(50.0%)"
    entry = f"__REALTIME_TIMESTAMP={time_ns // 1000}\nSYSLOG_IDENTIFIER=iscsitrace-tcp-info\nMESSAGE={sample}\n\n"
    return block(9, entry.encode())


FAMILIES["samples"] = _Sampled(FAMILIES["sessions"].build, 100)
FAMILIES["samples_of_reused_ports"] = _Sampled(_one_after_the_other, 100, is_one_port=True)
LACKING["samples"] = LACKING["samples_of_reused_ports"] = ("taps",)
