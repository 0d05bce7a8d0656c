"""The congestion window that captures show, against kernels in settings that nobody chose.

``python -m bench.guest_windows -o DIR [--count 60] [--seed 1]``: makes the runs that the folder lacks (guests with
Debian's kernel, open-iscsi and LIO; needs root and `make guests`), and compares the estimate at either tap with
tcp_probe, which says the window at every segment. An estimate that is valid has to hold both limits; without one,
nothing is judged. The settings follow from the seed and are used for nothing else. The exit code is 1 if a sender
misses a limit.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Final

import numpy as np

import iscsitrace
from bench.senders import TABLES, Errors, Known, errors, estimates, of_probe
from iscsitrace.lab.run_files import TRUTH, capture_name

SIDES: Final = ("initiator", "target")
MEDIAN_PERCENT, P95_PERCENT = 5, 15
"""The largest errors of a valid estimate."""
_KIB, _MIB = 1 << 10, 1 << 20
_MOST_BYTES: Final = 12 * _MIB
"""Guests without KVM are slow."""


def options(seed: int, number: int) -> list[str]:
    """The options of `lab run` for the setting with this number."""
    chance = random.Random(seed * 1_000_003 + number)
    block_bytes = chance.choice((16, 64, 256, 1024)) * _KIB
    control = chance.choice(("reno", "cubic", "cubic", "bbr"))
    found = [chance.choice(("read", "write")), "--block-size", str(block_bytes)]
    found += ["--queue-depth", str(chance.choice((1, 2, 4, 8, 16)))]
    found += ["--bytes", str(max(8 * block_bytes, chance.choice((_MOST_BYTES // 4, _MOST_BYTES))))]
    found += ["--one-way-delay", f"{10 ** chance.uniform(0, 1.5):.1f}ms", "--lun", "64M"]
    found += ["--congestion-control", control]
    rate_mbit = chance.choice((0, 0, 10, 30, 100))
    if rate_mbit:
        found += ["--rate", f"{rate_mbit}Mbit", "--queue", str(chance.choice((20, 100, 1000)))]
    found += chance.choice(([], [], ["--loss", "0.1%"], ["--loss", "0.5%"], ["--loss", "2%"]))
    digests = ["--set", "header-digest=crc32c", "--set", "data-digest=crc32c"]
    found += chance.choice(([], [], digests))
    small = chance.choice(("", "", "send-buffer", "receive-buffer"))
    if small:
        found += ["--set", f"{small}={chance.choice((64, 128)) * _KIB}"]
    return found + chance.choice(([], [], ["--sessions", "2"]))


@dataclass(frozen=True)
class Row:
    """One sender at one tap."""

    run: str
    tap: str
    side: str
    initiator_port: int
    off: Errors

    @property
    def is_good(self) -> bool | None:
        """Whether its valid estimates hold both limits; None without any."""
        if isnan(self.off.median):
            return None
        return 100 * self.off.median <= MEDIAN_PERCENT and 100 * self.off.p95 <= P95_PERCENT


def rows_of(folder: Path) -> Iterator[Row]:
    """All senders of a run that ever had enough in flight to show a window, at either tap."""
    truth = json.loads((folder / TRUTH).read_text())
    for tap in SIDES:
        trace = iscsitrace.read(folder / capture_name(tap), tables=TABLES)
        for connection in trace.connections.rows():
            port = connection["initiator_port"]
            for side in SIDES:
                told = estimates(trace, to_target=side == "initiator", connection=connection["connection"])
                known = known_of(truth, side, tap, port)
                if told.is_busy and known is not None:
                    yield Row(folder.name, tap, side, port, errors(told, known))


def known_of(truth: Mapping[str, Any], side: str, tap: str, initiator_port: int) -> Known | None:
    """The window of a sender by tcp_probe, on the clock of a tap; None without two segments."""
    probe = truth["guests"][side]["events"]["tcp_probe"]
    own = "src" if side == "initiator" else "dest"
    rows = [row for row, end in enumerate(probe.get(own, ())) if end.rpartition(":")[2] == str(initiator_port)]
    ends = truth["initiator_ends"] if side == "initiator" else [end for ends in truth["target_ends"] for end in ends]
    segment_bytes = max((end["snd_mss"] for end in ends if end["initiator_port"] == initiator_port), default=0)
    if not segment_bytes:
        return None
    ahead_ns = _offset_ns(truth, side) - _offset_ns(truth, tap)
    time_ns = [probe["time_ns"][row] - ahead_ns for row in rows]
    return of_probe(time_ns, [probe["snd_cwnd"][row] * segment_bytes for row in rows])


def _offset_ns(truth: Mapping[str, Any], host: str) -> int:
    """By how much a guest's clock is ahead of this machine's."""
    return round(float(np.mean(truth["guests"][host]["clock"]["offset_ns"])))


def _make(folder: Path, words: list[str]) -> bool:
    command = [
        sys.executable,
        "-m",
        "iscsitrace",
        "lab",
        "run",
        "--world",
        "guests",
        *words,
        "-o",
        str(folder),
        "--force",
    ]
    return subprocess.run([*command, "--quiet"], check=False, stdout=subprocess.DEVNULL).returncode == 0


def _percent(share: float) -> str:
    return "-" if isnan(share) else f"{100 * share:.1f}"


def main() -> int:
    """Makes what is missing, and prints a row for each sender, and sums."""
    parser = argparse.ArgumentParser(prog="bench.guest_windows", description=__doc__.splitlines()[0])
    parser.add_argument("-o", dest="output", type=Path, required=True, metavar="DIR", help="where the runs are")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: list[Row] = []
    for number in range(arguments.count):
        folder, words = arguments.output / f"{arguments.seed}-{number:02}", options(arguments.seed, number)
        if not (folder / TRUTH).exists() and not _make(folder, words):
            print(f"{folder.name}: no run: {' '.join(words)}")
            continue
        print(f"{folder.name}: {' '.join(words)}")
        for row in rows_of(folder):
            found.append(row)
            told = f"median {_percent(row.off.median)} %, p95 {_percent(row.off.p95)} %"
            verdict = {None: "no estimate", True: "good", False: "BAD"}[row.is_good]
            told += f", valid {_percent(row.off.share_valid)} %"
            print(f"    at {row.tap}, {row.side} {row.initiator_port}: {told}: {verdict}", flush=True)
    judged = [row for row in found if row.is_good is not None]
    bad = [row for row in judged if not row.is_good]
    valid = float(np.median([row.off.share_valid for row in found])) if found else float("nan")
    print(f"{len(judged) - len(bad)} of {len(judged)} senders at a tap with an estimate hold both limits")
    print(f"{len(found)} had a window; valid in the median {_percent(valid)} % of the busy time")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
