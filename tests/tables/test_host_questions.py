"""Questions whether hosts are there, against tshark: ARP, neighbor discovery and pings, and what is none."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path

import iscsitrace
from tests.support import tshark
from tests.support.capture_file import Record, write_pcapng
from tests.support.transport import ETHERNET
from tests.tables.test_icmp_errors import START_NS, ethernet, ip

HOST, DISK, ABSENT = "192.0.2.1", "192.0.2.2", "192.0.2.9"
HOST6, DISK6 = "2001:db8::1", "2001:db8::2"


def packed(address: str) -> bytes:
    """Its bytes."""
    return ipaddress.ip_address(address).packed


def arp(operation: int, sender: str, target: str) -> bytes:
    """A padded frame of ARP."""
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + bytes(6) + packed(sender) + bytes(6) + packed(target)
    return bytes(12) + b"\x08\x06" + body.ljust(46, b"\0")


def echo(source: str, destination: str, kind: int) -> bytes:
    """A ping, or its answer."""
    protocol = 58 if ":" in source else 1
    return ethernet(ip(source, destination, protocol, struct.pack("!BBHHH", kind, 0, 0, 1, 1)))


def neighbor(source: str, destination: str, kind: int, flags: int, named: str) -> bytes:
    """Neighbor discovery: a solicitation or an advertisement."""
    return ethernet(ip(source, destination, 58, struct.pack("!BBHB3x", kind, 0, 0, flags) + packed(named)))


FRAMES = (
    arp(1, HOST, ABSENT),
    arp(1, HOST, DISK),
    arp(2, DISK, HOST),
    arp(1, HOST, ABSENT),
    # an announcement, and a look whether an address is free
    arp(1, HOST, HOST),
    arp(1, str(ipaddress.IPv4Address(0)), ABSENT),
    echo(DISK, HOST, 8),
    echo(DISK, HOST, 8),
    echo(HOST, DISK, 8),
    echo(DISK, HOST, 0),
    neighbor(HOST6, "ff02::1:ff00:2", 135, 0, DISK6),
    neighbor(DISK6, HOST6, 136, 0x60, DISK6),
    echo(HOST6, DISK6, 128),
    echo(DISK6, HOST6, 129),
)


def test_questions_and_answers_are_those_that_tshark_shows(tmp_path: Path) -> None:
    records = [Record(START_NS + place, frame, len(frame)) for place, frame in enumerate(FRAMES)]
    file = write_pcapng(tmp_path / "questions.pcapng", records, ETHERNET)
    found = [tuple(row.values()) for row in iscsitrace.read(file, tables=()).host_questions.rows()]
    at = START_NS - 1
    assert found == [
        ("neighbor", HOST, ABSENT, 2, 0, 1, at + 1, at + 4, None),
        ("neighbor", HOST, DISK, 1, 1, 2, at + 2, at + 2, at + 3),
        ("echo", DISK, HOST, 2, 0, 7, at + 7, at + 8, None),
        ("echo", HOST, DISK, 1, 1, 9, at + 9, at + 9, at + 10),
        ("neighbor", HOST6, DISK6, 1, 1, 11, at + 11, at + 11, at + 12),
        ("echo", HOST6, DISK6, 1, 1, 13, at + 13, at + 13, at + 14),
    ]
    questions = "(arp.opcode == 1 && !arp.isgratuitous && !arp.isprobe) || icmp.type == 8 || icmpv6.type in {128, 135}"
    answers = "arp.opcode == 2 || icmp.type == 0 || icmpv6.type in {129, 136}"
    counts = [len(tshark.frame_numbers(file, which)) for which in (questions, answers)]
    assert counts == [sum(row[place] for row in found) for place in (3, 4)]


def test_a_scan_of_addresses_is_bounded(tmp_path: Path) -> None:
    addresses = (str(ipaddress.ip_address("10.0.0.0") + place) for place in range(1, 5001))
    frames = [arp(1, HOST, address) for address in addresses]
    records = [Record(START_NS + place, frame, len(frame)) for place, frame in enumerate(frames)]
    trace = iscsitrace.read(write_pcapng(tmp_path / "scan.pcapng", records, ETHERNET), tables=())
    listed = len(trace.host_questions)
    (counter,) = [row for row in trace.counters.rows() if row["name"] == "host_questions_not_listed"]
    assert (listed, counter["count"]) == (4096, 5000 - 4096)
