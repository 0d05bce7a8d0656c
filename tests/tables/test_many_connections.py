"""Memory of a pass over many connections: it grows with those under way and with rows, not with those that are over."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path as FilePath

import numpy as np
import pytest

import iscsitrace
from iscsitrace import findings
from tests.support.capture_file import Record, write_pcap
from tests.support.conversation import Conversation, Session
from tests.support.pdu import Task
from tests.support.transport import ETHERNET, SYN, Path

START_NS = 1_700_000_000_000_000_000
PORT, FIRST_PORT = 3260, 10_000

SCRIPT = """
import sys
import iscsitrace
from iscsitrace import findings
def resident_bytes():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
iscsitrace.read(sys.argv[1], tables=findings.NEEDED)
before = resident_bytes()
iscsitrace.read(sys.argv[2], tables=findings.NEEDED)
print(resident_bytes() - before)
"""
"""Bytes that a pass over the second capture takes beyond one over the first."""


def more_bytes(few: FilePath, many: FilePath) -> int:
    """The memory that the second capture takes beyond the first."""
    if sys.platform != "linux":
        pytest.skip("the memory of a process is read from /proc")
    command = [sys.executable, "-c", SCRIPT, str(few), str(many)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def syns(file: FilePath, count: int) -> FilePath:
    """SYNs of as many connections to one portal, 100 µs apart, which nobody answers."""

    def frame(number: int) -> bytes:
        host, port = divmod(number, 50_000)
        tcp = struct.pack("!HHIIBBHHH", FIRST_PORT + port, PORT, number, 0, 0x50, SYN, 65_535, 0, 0)
        addresses = struct.pack("!II", 0x0A000001 + host, 0xC0000201)
        return (
            bytes(12)
            + b"\x08\x00"
            + struct.pack("!BBHHHBBH", 0x45, 0, 40, number & 0xFFFF, 0x4000, 64, 6, 0)
            + addresses
            + tcp
        )

    records = [Record(START_NS + number * 100_000, frame(number), 54) for number in range(count)]
    return write_pcap(file, records, ETHERNET)


def sessions(file: FilePath, count: int, commands: int) -> FilePath:
    """As many sessions of the same commands, each over before the next begins: one session, with other ports."""
    conversation = Conversation(Path(), seed=7)
    tasks = [Task("read", number, 1) for number in range(commands)]
    conversation.session(Session(tag_count=2**32)).login().tasks(tasks, queue_depth=2).logout()
    packets = conversation.run().packets
    period_ns = packets[-1].time_ns - packets[0].time_ns + 50_000_000
    records = []
    for number in range(count):
        for packet in packets:
            frame = bytearray(packet.data)
            struct.pack_into("!H", frame, 34 if packet.to_target else 36, FIRST_PORT + number)
            records.append(Record(packet.time_ns + number * period_ns, bytes(frame), packet.original_length))
    return write_pcap(file, records, ETHERNET)


def test_unanswered_syns_hold_little(tmp_path: FilePath) -> None:
    """At most 32,768 connections are tracked, each in less than 3 kB until its row: the analysis of its senders alone
    takes 9 kB from its first payload on.
    """
    few, many = syns(tmp_path / "few.pcap", 10), syns(tmp_path / "many.pcap", 60_000)
    assert more_bytes(few, many) < 3_000 * 32_768 + 600 * 60_000


def test_a_session_that_is_over_holds_little(tmp_path: FilePath) -> None:
    """Less than 30 kB with its rows; under way it holds 50."""
    count, commands = 2_000, 10
    few, many = sessions(tmp_path / "few.pcap", 10, commands), sessions(tmp_path / "many.pcap", count, commands)
    trace = iscsitrace.read(many, tables=findings.NEEDED)
    assert len(trace.connections) == len(trace.sessions) == count
    assert np.bincount(trace.cycles.raw("session")).tolist() == [commands] * count
    # what sessions handed over early is in the order of their connections
    assert trace.senders.raw("connection").tolist() == np.repeat(np.arange(count), 2).tolist()
    assert np.all(np.diff(trace.parameters.raw("connection").astype(np.int64)) >= 0)
    assert more_bytes(few, many) < 30_000 * count
