"""Compares the speed of our initiator, with every driver, to iscsi-perf on one LUN of tgt, and of our target to tgt.

Random reads over loopback, by the two in turn, so that other load affects both; the result is the median over the
rounds of the ratio of their rates. A bench, not a test: it always exits with code 0. Needs tgt and libiscsi-bin.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.process import FOLDER, machine
from iscsitrace.lab import peers, traffic
from iscsitrace.lab.actors import iscsi_perf
from iscsitrace.lab.places import HERE

LUN_BYTES = 256 << 20
LOGICAL_BLOCK_BYTES = 512
SECOND_NS = 1_000_000_000
POINTS = ((4 << 10, 1), (4 << 10, 32), (64 << 10, 8), (1 << 20, 4))
"""I/O size in bytes, and queue depth."""
DESIGNS = {"threads": ("threads", "copy"), "no copy": ("events", "discard")}
"""Driver and receive mode of the other designs; the first design uses events and copies."""
TARGET_POINTS = ((4 << 10, 32), (1 << 20, 4))
NAME = "iqn.2001-04.com.example:bench"
OURS = "iscsitrace"

Reader = Callable[[int, int, int], float]
"""From I/O size, queue depth and seconds to reads per second."""


@dataclass(frozen=True)
class Race:
    """One point: reads per second of our program and of the other, round by round."""

    what: str
    block_size_bytes: int
    queue_depth: int
    ours: list[float]
    other: list[float]

    @property
    def ratio(self) -> float:
        """Our rate / the other's, median over the rounds."""
        return statistics.median(ours / other for ours, other in zip(self.ours, self.other, strict=True))


def by_our_initiator(url: str, driver: str = "events", receive: str = "copy") -> Reader:
    """Reads from this URL by our initiator with this design."""

    def read(block_size: int, queue_depth: int, seconds: int) -> float:
        workload = {
            "operation": "read",
            "access": "random",
            "block_size_bytes": block_size,
            "queue_depth": queue_depth,
            "duration_ns": seconds * SECOND_NS,
        }
        settings = {
            "client": {"workload": workload},
            "urls": [traffic.parse_url(url).resolved()],
            "driver": driver,
            "receive": receive,
        }
        results = traffic.run_initiator(settings, lambda *_: False)["results"]
        if results["errors"]:
            raise RuntimeError(results["errors"][0])
        return float(results["calls"] / results["elapsed_ns"] * SECOND_NS)

    return read


def by_iscsi_perf(url: str) -> Reader:
    """Reads from this URL by libiscsi's initiator."""

    def read(block_size: int, queue_depth: int, seconds: int) -> float:
        measured = iscsi_perf(
            HERE,
            url,
            queue_depth=queue_depth,
            block_count=block_size // LOGICAL_BLOCK_BYTES,
            seconds=seconds,
            is_random=True,
        )
        return float(measured.iops)

    return read


@contextmanager
def our_target() -> Iterator[str]:
    """Our target with one LUN in memory, in a thread: its URL."""
    is_ready, is_over = threading.Event(), threading.Event()
    listening: list[str] = []

    def ready(addresses: list[str]) -> None:
        listening.extend(addresses)
        is_ready.set()

    unit = {"medium": "ram", "size_bytes": LUN_BYTES}
    portal = {"targets": [{"target_name": NAME, "logical_units": [unit]}], "limits": {"logged_task_count": 0}}
    settings = {"portal": portal, "listen": ["127.0.0.1:0"]}
    thread = threading.Thread(target=traffic.run_target, args=(settings, ready, lambda *_: is_over.is_set()))
    thread.start()
    try:
        if not is_ready.wait(10):
            raise RuntimeError("our target does not listen")
        yield f"iscsi://{listening[0]}/{NAME}/0"
    finally:
        is_over.set()
        thread.join()


def race(what: str, point: tuple[int, int], ours: Reader, other: Reader, rounds: int, seconds: int) -> Race:
    """Runs both in turn; the order changes from round to round."""
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            rates[index].append((ours, other)[index](*point, seconds))
    result = Race(what, *point, *rates)
    middle = [statistics.median(each) for each in rates]
    spread = [min(a / b for a, b in zip(*rates, strict=True)), max(a / b for a, b in zip(*rates, strict=True))]
    size = f"{point[0] >> 20} MiB" if point[0] >= 1 << 20 else f"{point[0] >> 10} KiB"
    print(
        f"{what:10} {size:>7} QD {point[1]:<3}{middle[0]:9,.0f}/s{middle[1]:9,.0f}/s   {result.ratio:5.2f}"
        f"   ({spread[0]:.2f} to {spread[1]:.2f})",
        flush=True,
    )
    return result


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2, help="duration of each run")
    arguments = parser.parse_args()
    options = (arguments.rounds, arguments.seconds)
    loads = [os.getloadavg()[0]]
    print(f"{machine()}; load {loads[0]:.1f} at the start; medians of {arguments.rounds} rounds")
    print(f"{'':30}{'ours':>11}{'other':>11}   ratio")
    races = []
    with peers.tgt(HERE, lun_bytes=LUN_BYTES) as tgt:
        ours, other = by_our_initiator(tgt.url), by_iscsi_perf(tgt.url)
        # the first reading warms the cache
        ours(1 << 20, 4, 1)
        races += [race("initiator", point, ours, other, *options) for point in POINTS]
        for name, design in DESIGNS.items():
            designed = by_our_initiator(tgt.url, *design)
            races += [race(name, point, designed, other, *options) for point in POINTS]
        with our_target() as url:
            ours = by_iscsi_perf(url)
            races += [race("target", point, ours, other, *options) for point in TARGET_POINTS]
    loads.append(os.getloadavg()[0])
    print(f"load {loads[1]:.1f} at the end; other: iscsi-perf on tgt; for the rows 'target', tgt (read by iscsi-perf)")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "loads": loads, "races": [asdict(each) | {"ratio": each.ratio} for each in races]}
    (arguments.folder / "traffic.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
