"""Records a run at each end: packets by dumpcap, and TCP_INFO of every connection from the kernel.

A capture ends when all packets are written, and counts those that dumpcap dropped. Never overwrites a file.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from iscsitrace.errors import OutputExists, ToolMissing
from iscsitrace.lab.places import Place, Process
from iscsitrace.lab.sock_diag import SockDiag

# libpcap delivers a block of packets after 250 ms at the latest (dumpcap's CAP_READ_TIMEOUT)
_BLOCK_S = 0.25
_DRAIN_LIMIT_S = 10
_COUNTS = re.compile(r"Packets received/dropped on interface .*: (\d+)/(\d+) ")


@dataclass
class CaptureFile:
    """A capture file. Its counts are known when it is complete."""

    file: Path
    packet_count: int | None = None
    dropped_count: int | None = None
    """Packets that were not written, because the kernel's buffer was full or dumpcap too slow."""


@contextmanager
def capturing(
    place: Place,
    interface: str,
    file: Path,
    *,
    capture_filter: str = "",
    snaplen_bytes: int | None = None,
    buffer_mib: int = 64,
) -> Iterator[CaptureFile]:
    """Captures on an interface into a pcapng file with nanoseconds, from the block's first packet to its last.

    OutputExists if the file exists; ToolMissing if dumpcap is missing or fails.
    """
    with capturing_all(
        [(place, interface, file)],
        capture_filter=capture_filter,
        snaplen_bytes=snaplen_bytes,
        buffer_mib=buffer_mib,
    ) as (capture,):
        yield capture


@contextmanager
def capturing_all(
    wanted: Sequence[tuple[Place, str, Path]],
    *,
    capture_filter: str = "",
    snaplen_bytes: int | None = None,
    buffer_mib: int = 64,
) -> Iterator[list[CaptureFile]]:
    """Captures on several interfaces at the same time, each into its file."""
    options = ["-B", str(buffer_mib)]
    if capture_filter:
        options += ["-f", capture_filter]
    if snaplen_bytes is not None:
        options += ["-s", str(snaplen_bytes)]
    for _, _, file in wanted:
        if file.exists():
            raise OutputExists(f"{file} exists")
    with ExitStack() as stack:
        running = []
        for place, interface, file in wanted:
            # quiet: its packet counts would fill the log of a long run
            arguments = ("-q", "-i", interface, "-w", str(file), *options)
            started = place.started("dumpcap", *arguments, package="wireshark-common", stop_signal=signal.SIGINT)
            running.append((stack.enter_context(started), CaptureFile(file)))
        for dumpcap, _ in running:
            _await_open(dumpcap)
        yield [capture for _, capture in running]
        _drain([dumpcap for dumpcap, _ in running])
        for dumpcap, capture in running:
            dumpcap.stop(signal.SIGINT, limit_s=_DRAIN_LIMIT_S)
            counts = _COUNTS.search(dumpcap.log)
            if counts is None:
                raise ToolMissing(f"dumpcap ended without its counts: {dumpcap.log.strip()[-200:]}")
            capture.packet_count, capture.dropped_count = int(counts[1]), int(counts[2])


def _await_open(dumpcap: Process) -> None:
    # dumpcap prints the file name when the interface is open
    dumpcap.wait_until(lambda: "File:" in dumpcap.log, "no capture")


def _drain(dumpcaps: Sequence[Process]) -> None:
    """Waits until each has received and written every packet."""
    end = time.monotonic() + _DRAIN_LIMIT_S
    time.sleep(_BLOCK_S)
    before = None
    while time.monotonic() < end:
        now = [_processor_ticks(dumpcap.process_id) for dumpcap in dumpcaps]
        if now == before:
            return
        before = now
        time.sleep(1.2 * _BLOCK_S)


def _processor_ticks(process_id: int) -> int | None:
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    user, system = status.rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


@dataclass
class TcpInfoSamples:
    """TCP_INFO over time: a row per connection and ``time_ns`` since 1970, on the clock of captures."""

    rows: list[dict[str, int | str | bool]] = field(default_factory=list)
    missed_count: int = 0
    """Samples that were skipped because the previous one took too long."""


@contextmanager
def sampling(place: Place, *, period_s: float = 0.02) -> Iterator[TcpInfoSamples]:
    """Samples every TCP connection of a place while the block runs, with a first sample before it.

    ToolMissing if the kernel refuses a later sample.
    """
    samples = TcpInfoSamples()
    ended = threading.Event()
    failures: list[Exception] = []

    def sample(diagnosis: SockDiag) -> None:
        time_ns = time.time_ns()
        samples.rows += [{"time_ns": time_ns, **connection} for connection in diagnosis.connections()]

    def keep_sampling(diagnosis: SockDiag) -> None:
        next_s = time.monotonic() + period_s
        while not ended.wait(max(0.0, next_s - time.monotonic())):
            try:
                sample(diagnosis)
            except (OSError, ToolMissing) as error:
                failures.append(error)
                return
            late = max(0, int((time.monotonic() - next_s) / period_s))
            samples.missed_count += late
            next_s += (1 + late) * period_s

    with SockDiag(place) as diagnosis:
        sample(diagnosis)
        thread = threading.Thread(target=keep_sampling, args=(diagnosis,), name="TCP_INFO", daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            ended.set()
            thread.join()
        if failures:
            raise ToolMissing(f"TCP_INFO could not be sampled any more: {failures[0]}") from failures[0]
