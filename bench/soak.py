"""Soak test of the live view: memory, lag and descriptors over time under connections that come and go.

A process writes packets into a pipe as they would be captured, with times of now: every second 60 sessions begin, log
in, read and write, and log out, 57 packets each, from addresses and ports of their own. ``watch --prometheus`` reads
the pipe, and is scraped every 15 s. With ``--flood N`` so many threads open connections to the metrics all the time:
every second one is a scrape, the others say nothing. Exit code 1 if memory grew by more than 10 % after minute 3, a
packet was 5 s late, or a scrape failed.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path as FilePath
from typing import IO, Any

from bench.process import FOLDER, machine
from bench.watch import ProcessUsage
from tests.support.conversation import Capture, Conversation, Session
from tests.support.transport import Packet, Path

CONNECTIONS_PER_S = 60
COMMANDS = 24
_PATH = Path(one_way_delay_ns=250_000, delayed_ack_ns=1_000_000)
FILE_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)
_INITIATOR = bytes([198, 18])
_SCRAPED_EVERY_S = 15.0
_PATIENCE_S = 60.0
_STEADY_AFTER_S = 180
_GROWTH_MAX = 1.1
_LAG_MAX_S = 5.0
_PAUSE_S = 0.05
"""Of a thread of the flood, after each connection."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=1200)
    parser.add_argument("--connections", type=int, default=CONNECTIONS_PER_S, help="new connections per second")
    parser.add_argument("--flood", type=int, default=8, help="threads that open connections to the metrics")
    options = parser.parse_args()
    print(machine())
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        wrong = _run(FilePath(folder), options.seconds, options.connections, options.flood)
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


def conversation() -> Capture:
    """A session from its handshake to its last ACK."""
    made = Conversation(_PATH)
    session = made.session(Session()).login()
    session.read(count=COMMANDS // 2, block_bytes=1024).write(count=COMMANDS // 2, block_bytes=512).logout()
    return made.run()


class Stream:
    """The packets of one conversation, again and again, each time of another initiator and later."""

    def __init__(self, capture: Capture) -> None:
        self._first_ns = capture.packets[0].time_ns
        self._packets = capture.packets
        self._initiator = next(packet.data[26:30] for packet in capture.packets)

    @property
    def packet_count(self) -> int:
        return len(self._packets)

    @property
    def length_ns(self) -> int:
        return self._packets[-1].time_ns - self._first_ns

    def of(self, number: int, start_ns: int) -> list[tuple[int, bytes]]:
        """The packets of a connection: time and record."""
        own = _INITIATOR + struct.pack(">H", number % 65_000)
        port = struct.pack(">H", 32_768 + number // 65_000 % 28_000)
        return [self._record(packet, start_ns, own, port) for packet in self._packets]

    def _record(self, packet: Packet, start_ns: int, own: bytes, port: bytes) -> tuple[int, bytes]:
        frame = bytearray(packet.data)
        is_sender = frame[26:30] == self._initiator
        at, port_at = (26, 34) if is_sender else (30, 36)
        frame[at : at + 4], frame[port_at : port_at + 2] = own, port
        time_ns = start_ns + packet.time_ns - self._first_ns
        seconds, rest_ns = divmod(time_ns, 1_000_000_000)
        return time_ns, struct.pack("<IIII", seconds, rest_ns, len(frame), packet.original_length) + frame


def feed(pipe: IO[bytes], seconds: int, per_s: int) -> tuple[int, int]:
    """Writes the packets at their times; returns how many connections and packets."""
    stream = Stream(conversation())
    pipe.write(FILE_HEADER)
    begun_ns = time.time_ns()
    waiting: list[tuple[int, bytes]] = []
    number = packets = 0
    while number < seconds * per_s or waiting:
        now_ns = time.time_ns()
        while number < seconds * per_s and (start_ns := begun_ns + number * 1_000_000_000 // per_s) <= now_ns:
            waiting += stream.of(number, start_ns)
            number += 1
        waiting.sort(key=lambda each: each[0])
        due = sum(1 for time_ns, _ in waiting if time_ns <= now_ns)
        pipe.write(b"".join(record for _, record in waiting[:due]))
        pipe.flush()
        packets += due
        del waiting[:due]
        time.sleep(0.02)
    pipe.close()
    return number, packets


class Flood:
    """Threads that open connections to the metrics until they are told to stop; every second one is a scrape."""

    def __init__(self, address: str, count: int) -> None:
        found = re.search(r"//([^:/]+):(\d+)", address)
        assert found
        self._address, self._end = address, (found[1], int(found[2]))
        self._is_over = threading.Event()
        self.opened = self.scraped = self.refused = 0
        self._threads = [threading.Thread(target=self._open, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _open(self) -> None:
        held: list[socket.socket] = []
        while not self._is_over.wait(_PAUSE_S):
            try:
                held.append(socket.create_connection(self._end, timeout=1))
                self.opened += 1
                _series(self._address)
                self.scraped += 1
            except OSError:
                self.refused += 1
            if len(held) > 16:
                held.pop(0).close()

    def stop(self) -> None:
        """Ends the threads."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def _run(folder: FilePath, seconds: int, per_s: int, flooding: int) -> list[str]:
    """What is wrong."""
    lines, messages = folder / "watch.jsonl", folder / "messages"
    command = [sys.executable, "-m", "iscsitrace", "watch", "--json", "--prometheus", "0", "-"]
    fed: list[tuple[int, int]] = []
    usage, descriptors, threads, series = ProcessUsage(), list[int](), list[int](), list[int]()
    scrapes_s, failed = list[float](), 0
    with (
        lines.open("wb") as out,
        messages.open("wb") as said,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=said) as watch,
    ):
        pipe = watch.stdin
        assert pipe
        address = _address(messages)
        feeding = threading.Thread(target=lambda: fed.append(feed(pipe, seconds, per_s)))
        feeding.start()
        flood = Flood(address, flooding)
        scraped_s = begun_s = time.monotonic()
        while feeding.is_alive() and watch.poll() is None:
            time.sleep(1)
            usage.sample(watch.pid)
            descriptors.append(len(list(FilePath(f"/proc/{watch.pid}/fd").iterdir())))
            threads.append(len(list(FilePath(f"/proc/{watch.pid}/task").iterdir())))
            if time.monotonic() - scraped_s >= _SCRAPED_EVERY_S:
                scraped_s = time.monotonic()
                try:
                    series.append(_series(address))
                    scrapes_s.append(time.monotonic() - scraped_s)
                except OSError:
                    failed += 1
        flood.stop()
        feeding.join()
        elapsed_s = time.monotonic() - begun_s
        code = watch.wait()
    lag_s, totals = _printed(lines)
    connections, packets = fed[0]
    print(f"sent: {connections} connections, {packets} packets, {packets / elapsed_s:.0f} per second")
    (commands,) = (row["cycle_count"] for row in totals["volumes"] if row["session"] is None)
    print(f"watch: {totals['packet_count']} packets, {commands} commands of {connections * COMMANDS}, exit code {code}")
    print(f"CPU: {usage.processor_s / elapsed_s * 100:.1f} % of one core")
    print(f"lag: at most {lag_s:.2f} s; skipped {totals['left_out_packets']} packets")
    for name, values in (("memory, MB", usage.rss_mb), ("descriptors", descriptors), ("threads", threads)):
        print(f"{name}, maximum of each tenth of the time: {_tenths(values)}")
    print(f"series of the metrics, maximum of each tenth: {_tenths(series)}")
    print(f"flood: {flood.opened} silent connections, {flood.scraped} scrapes, {flood.refused} refused")
    print(f"scrapes beside it: {len(series)}, {failed} failed, the slowest {max(scrapes_s, default=0):.2f} s")
    steady = usage.rss_mb[_STEADY_AFTER_S:]
    tenth = max(len(steady) // 10, 1)
    grown = max(steady[-tenth:]) / max(steady[:tenth]) if steady else 1.0
    print(f"memory at the end: {grown:.3f} times that of minute 3")
    wrong = {
        "memory grows": grown > _GROWTH_MAX,
        "packets are late": lag_s >= _LAG_MAX_S,
        "scrapes fail": failed > 0,
    }
    return [each for each, is_so in wrong.items() if is_so]


def _printed(lines: FilePath) -> tuple[float, dict[str, Any]]:
    """The longest lag of the intervals, and the totals. An interval is megabytes, so one is held at a time."""
    lag_s, document = 0.0, dict[str, Any]()
    with lines.open() as stream:
        for line in stream:
            document = json.loads(line)
            lag_s = max(lag_s, document.get("lag_s", 0.0))
    return lag_s, document


def _tenths(values: list[int] | list[float]) -> str:
    tenth = max(len(values) // 10, 1)
    return " ".join(f"{max(values[at : at + tenth]):.0f}" for at in range(0, len(values), tenth))


def _address(messages: FilePath) -> str:
    """Where the metrics are, once they are served."""
    limit_s = time.monotonic() + _PATIENCE_S
    while not (found := re.search(r"http://\S+", messages.read_text())):
        assert time.monotonic() < limit_s, "watch serves no metrics"
        time.sleep(0.1)
    return found[0]


def _series(address: str) -> int:
    with urllib.request.urlopen(address, timeout=_PATIENCE_S) as answer:
        return sum(1 for line in answer.read().decode().splitlines() if not line.startswith("#"))


if __name__ == "__main__":
    main()
