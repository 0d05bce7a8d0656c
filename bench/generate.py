"""Writes the captures of the bench: 2 GB of sequential reads, 1 GB of random 4 KiB I/O, 300 MB of 200 sessions.

A conversation of the tests' builder has one period of traffic. The file repeats this period, with every running number
patched each time: times, IP identification, sequence numbers, TCP timestamps, tags, serial numbers, block addresses.
tshark and tcptrace see clean streams. TCP checksums are 0, as a host with checksum offload captures them. Files are
kept in build/bench and made once.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bench.process import FOLDER
from tests.support.conversation import Capture, Conversation, Session
from tests.support.pdu import (
    DATA_IN,
    DATA_OUT,
    LOGOUT_REQUEST,
    LOGOUT_RESPONSE,
    R2T,
    SCSI_COMMAND,
    SCSI_RESPONSE,
    Task,
)
from tests.support.transport import ETHERNET, FIN, SYN, Packet, Path

# between the commands and the logout: longer than the difference between sessions
PAUSE_NS = 2_000_000_000
PATH = Path(one_way_delay_ns=250_000, delayed_ack_ns=1_000_000)
ETHERNET_BYTES = 14
RECORD_BYTES = 16

Bytes = NDArray[np.uint8]


def sequential_reads(path: Path = PATH) -> Capture:
    """Sequential, 256 KiB to 1 MiB, in Data-In PDUs of 256 KiB."""
    conversation = Conversation(path)
    session = conversation.session(Session(tag_count=2**32)).login()
    blocks, tasks = 0, []
    for size in (262_144, 1_048_576, 524_288, 262_144, 524_288):
        tasks.append(Task("read", blocks, size // 512))
        blocks += size // 512
    session.tasks(tasks).pause(PAUSE_NS).logout()
    return conversation.run()


def random_io(session_count: int = 4, task_count: int = 2000, queue_depth: int = 32) -> Capture:
    """Sessions with 4 KiB I/O, 70 % reads; every other one writes with immediate data, the others with R2Ts."""
    conversation = Conversation(PATH)
    chance = random.Random(1)
    for number in range(session_count):
        session = conversation.session(Session(tag_count=2**32, is_immediate_data=number % 2 == 0)).login()
        tasks = [
            Task("read" if chance.random() < 0.7 else "write", 8 * chance.randrange(1 << 20), 8)
            for _ in range(task_count)
        ]
        session.tasks(tasks, queue_depth=queue_depth).pause(PAUSE_NS).logout()
    return conversation.run()


def many_sessions() -> Capture:
    """200 sessions with 4 KiB I/O at queue depth 4."""
    return random_io(200, 40, 4)


@dataclass
class Patches:
    """Numbers in a series of records that grow by a step each period; `place` is the offset of each number's bytes."""

    kind: str
    """NumPy type as stored in the file."""
    place: NDArray[np.int64]
    base: NDArray[np.uint64]
    step: NDArray[np.uint64]

    def apply(self, records: Bytes, period: int) -> None:
        """Sets the numbers of this period."""
        values = (self.base + self.step * np.uint64(period)).astype(self.kind)
        records[self.place] = values.view(np.uint8).reshape(self.place.shape)


class Run:
    """Consecutive packets as one buffer of pcap records, and the growth of their numbers from period to period."""

    def __init__(self, capture: Capture, packets: list[Packet], steps: Steps) -> None:
        out = bytearray()
        starts = []
        for packet in packets:
            starts.append(len(out))
            out += struct.pack("<IIII", 0, 0, len(packet.data), packet.original_length) + packet.data
        self.records: Bytes = np.frombuffer(out, dtype=np.uint8).copy()
        self.packet_count = len(packets)
        first = np.array(starts, dtype=np.int64) + RECORD_BYTES
        tcp = first + ETHERNET_BYTES + 20
        self._time_place = np.array(starts, dtype=np.int64)[:, None] + np.arange(8)
        self._time_us = np.array([packet.time_ns // 1000 for packet in packets], dtype=np.uint64)
        self._period_us = np.uint64(steps.period_ns // 1000)
        ip_words = self._load(first + ETHERNET_BYTES, 20).reshape(-1, 10, 2).astype(np.uint32)
        words = ip_words[:, :, 0] << 8 | ip_words[:, :, 1]
        # all words of the IP header but the identification and the checksum
        self._ip_sum = words.sum(axis=1) - words[:, 2] - words[:, 5]
        self._identification = words[:, 2]
        self._identification_step = np.array(
            [steps.packets[p.connection, p.to_target] for p in packets], dtype=np.uint32
        )
        self._ip_place = first[:, None] + ETHERNET_BYTES + np.array([4, 5, 10, 11])
        self.records[tcp[:, None] + np.array([16, 17])] = 0
        sent = np.array([steps.stream_bytes[p.connection, p.to_target] for p in packets])
        received = np.array([steps.stream_bytes[p.connection, not p.to_target] for p in packets])
        milliseconds = np.full(len(packets), steps.period_ns // 1_000_000)
        # the options of all packets but SYNs begin with two NOPs and the timestamps option
        parts = [(tcp + 4, sent), (tcp + 8, received), (tcp + 24, milliseconds), (tcp + 28, milliseconds)]
        pdu_place, pdu_step = _pdu_fields(capture, packets, first, steps)
        place = np.concatenate([np.concatenate([place for place, _ in parts])[:, None] + np.arange(4), pdu_place])
        step = np.concatenate([step for _, step in parts] + [pdu_step]).astype(np.uint64)
        base = self.records[place].astype(np.uint64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1], dtype=np.uint64)
        self._patches = Patches(">u4", place, base, step)

    def _load(self, start: NDArray[np.int64], length: int) -> Bytes:
        loaded: Bytes = self.records[start[:, None] + np.arange(length)]
        return loaded

    def write(self, file: BinaryIO, period: int) -> None:
        """Appends the records of this period."""
        self._patches.apply(self.records, period)
        times = self._time_us + self._period_us * np.uint64(period)
        seconds_and_rest = np.stack([times // 1_000_000, times % 1_000_000], axis=1).astype("<u4")
        self.records[self._time_place] = seconds_and_rest.view(np.uint8)
        identification = (self._identification + self._identification_step * np.uint32(period)) & 0xFFFF
        total = self._ip_sum + identification
        total = (total & 0xFFFF) + (total >> 16)
        checksum = 0xFFFF - ((total & 0xFFFF) + (total >> 16))
        self.records[self._ip_place] = np.stack([identification, checksum], axis=1).astype(">u2").view(np.uint8)
        file.write(self.records.data)


@dataclass
class Steps:
    """Growth of each kind of number per period."""

    period_ns: int
    stream_bytes: Counter[tuple[int, bool]]
    packets: Counter[tuple[int, bool]]
    tasks: Counter[int]
    r2ts: Counter[int]
    blocks: int


def _fields(opcode: int, has_status: bool, is_solicited: bool, steps: Steps, connection: int) -> list[tuple[int, int]]:
    """(place in the header, growth) of each running field; one connection per session."""
    tasks, r2ts = steps.tasks[connection], steps.r2ts[connection]
    from_target = [(28, tasks), (32, tasks)]  # ExpCmdSN, MaxCmdSN
    if opcode == SCSI_COMMAND:
        return [(16, tasks), (24, tasks), (28, tasks), (34, steps.blocks)]
    if opcode == DATA_IN:
        return [(16, tasks), *from_target] + [(24, tasks)] * has_status
    if opcode == DATA_OUT:
        return [(16, tasks), (28, tasks)] + [(20, r2ts)] * is_solicited
    if opcode == R2T:
        return [(16, tasks), (20, r2ts), (24, tasks), *from_target]
    if opcode in (SCSI_RESPONSE, LOGOUT_RESPONSE):
        return [(16, tasks), (24, tasks), *from_target]
    assert opcode == LOGOUT_REQUEST
    return [(16, tasks), (24, tasks), (28, tasks)]


def _pdu_fields(
    capture: Capture, packets: list[Packet], first: NDArray[np.int64], steps: Steps
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The running fields of all PDUs of these packets: the places of their four bytes, and their steps.

    Four places each, because the end of a segment may cut a header anywhere. `first` is the start of each frame.
    """
    streams: dict[tuple[int, bool], list[tuple[int, int, int]]] = {}
    for packet, start in zip(packets, first.tolist(), strict=True):
        if packet.payload_bytes:
            held = (packet.stream_offset, packet.payload_bytes, start + packet.header_bytes)
            streams.setdefault((packet.connection, packet.to_target), []).append(held)
    places = {}
    for stream, parts in streams.items():
        low = parts[0][0]
        place = np.empty(parts[-1][0] + parts[-1][1] - low, dtype=np.int64)
        for offset, length, start in parts:
            place[offset - low : offset - low + length] = np.arange(start, start + length)
        places[stream] = (low, place)
    rows, growth = [], []
    for pdu in capture.pdus:
        low, place = places.get((pdu.connection, pdu.to_target), (0, np.empty(0, dtype=np.int64)))
        offset = pdu.stream_offset - low
        if 0 <= offset < len(place):
            for field, step in _fields(pdu.opcode, pdu.has_status, pdu.is_solicited, steps, pdu.connection):
                rows.append(place[offset + field : offset + field + 4])
                growth.append(step)
    return np.array(rows, dtype=np.int64).reshape(-1, 4), np.array(growth, dtype=np.int64)


def write(file: FilePath, capture: Capture, size_bytes: int) -> dict[str, Any]:
    """Writes a capture of at least this size, in which the period of commands repeats; returns its content."""
    begin_ns = capture.login_end_ns
    end_ns = max(p.time_ns for p in capture.packets if p.time_ns < capture.packets[-1].time_ns - PAUSE_NS // 2)
    before = [packet for packet in capture.packets if packet.time_ns < begin_ns]
    middle = [packet for packet in capture.packets if begin_ns <= packet.time_ns <= end_ns]
    after = [packet for packet in capture.packets if packet.time_ns > end_ns]
    assert not any(packet.flags & (SYN | FIN) for packet in middle), "a session ended before the commands of another"
    streams = {(packet.connection, packet.to_target) for packet in capture.packets}
    connections = {connection for connection, _ in streams}
    payload_bytes = Counter[tuple[int, bool]]()
    for packet in middle:
        payload_bytes[packet.connection, packet.to_target] += packet.payload_bytes
    steps = Steps(
        # whole milliseconds, the unit of the TCP timestamps
        ((end_ns - begin_ns) // 1_000_000 + 2) * 1_000_000,
        payload_bytes,
        Counter((p.connection, p.to_target) for p in middle),
        Counter(record.connection for record in capture.tasks),
        Counter(pdu.connection for pdu in capture.pdus if pdu.opcode == R2T),
        max(record.task.lba + record.task.block_count for record in capture.tasks),
    )
    run, last = Run(capture, middle, steps), Run(capture, after, steps)
    period_count = max(1, -(-size_bytes // len(run.records)))
    with file.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, ETHERNET))
        for packet in before:
            seconds, rest = divmod(packet.time_ns // 1000, 1_000_000)
            out.write(struct.pack("<IIII", seconds, rest, len(packet.data), packet.original_length) + packet.data)
        for period in range(period_count):
            run.write(out, period)
        last.write(out, period_count - 1)
    middle_pdus = [pdu for pdu in capture.pdus if pdu.task is not None]
    return {
        "packets": len(before) + run.packet_count * period_count + last.packet_count,
        "pdus": len(capture.pdus) + len(middle_pdus) * (period_count - 1),
        "tasks": len(capture.tasks) * period_count,
        "sessions": len(connections),
        "data_bytes": period_count * sum(record.task.expected_data_transfer_length for record in capture.tasks),
        "bytes": file.stat().st_size,
    }


CAPTURES: dict[str, tuple[Callable[[], Capture], int]] = {
    "sequential": (sequential_reads, 2_000_000_000),
    "random": (random_io, 1_000_000_000),
    "sessions": (many_sessions, 300_000_000),
}


def generate(folder: FilePath = FOLDER, *, scale: float = 1.0) -> dict[str, FilePath]:
    """The captures of the bench, made if they do not exist; NAME.json beside each lists its content."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, (build, size_bytes) in CAPTURES.items():
        file, truth = folder / f"{name}.pcap", folder / f"{name}.json"
        if not (file.exists() and truth.exists()):
            started = time.perf_counter()
            content = write(file, build(), int(size_bytes * scale))
            truth.write_text(json.dumps(content) + "\n")
            print(f"{file}: {content} in {time.perf_counter() - started:.1f} s")
        files[name] = file
    return files


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=FilePath, default=FOLDER)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    arguments = parser.parse_args()
    generate(arguments.folder, scale=arguments.scale)
