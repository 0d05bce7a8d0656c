"""Commands that write, killed at random instants: what is left, and whether the same command then completes the work.

Each of ``--count`` kills draws a command and an instant by ``--seed``: `fleet run`, `export`, `report`, `anonymise`, or
`capture` of a file into a ring. SIGKILL goes to the command alone. Afterwards no process of it is left, every file
under its final name is whole, and the same command makes what it makes undisturbed. A ring ends where the capture
ended: its files can be read, and have the first packets of the whole one. Prints what was wrong, and exits with 1.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import iscsitrace
from bench.process import machine
from iscsitrace.tables.schema import DEFAULT_TABLES
from tests.support import rings

PATIENCE_S = 20.0
"""Time for the processes of a killed command to end."""
OUTPUT, CAPTURE, RING, KEY = "OUTPUT", "CAPTURE", "RING", "KEY"
COMMANDS = {
    "fleet": ("fleet", "run", "--workers", "2", "-o", "OUTPUT/data", "a=RING", "b=RING"),
    "csv": ("export", "--force", "-o", "OUTPUT/csv", "--tables", "pdus,segments,cycles", "CAPTURE"),
    "parquet": ("export", "--force", "--format", "parquet", "-o", "OUTPUT/parquet", "CAPTURE"),
    "perfetto": ("export", "--force", "--format", "perfetto", "-o", "OUTPUT/trace.perfetto", "CAPTURE"),
    "report": ("report", "--force", "-o", "OUTPUT/report.html", "CAPTURE"),
    "anonymise": ("anonymise", "--force", "--key-file", "KEY", "-o", "OUTPUT/anonymous.pcapng", "CAPTURE"),
    "ring": ("capture", "-q", "-r", "CAPTURE", "-w", "OUTPUT/ring.pcapng", "-b", "packets:100"),
}
SESSIONS = 40
"""In the capture; each has 30 commands."""


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7143)
    parser.add_argument("--command", action="append", choices=list(COMMANDS), help="only this one; repeatable")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="kills") as folder:
        bench = Bench(Path(folder))
        problems = bench.run(options.command or list(COMMANDS), options.count, options.seed)
    sys.exit(problems > 0)


class Bench:
    """The inputs, and what the commands make of them undisturbed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        packets = rings.traffic(3, sessions=SESSIONS)
        rings.cut(folder / "ring", packets, rings.random_borders(packets, 8, 3))
        self._capture = folder / "capture.pcapng"
        rings.whole(folder, packets)
        (folder / "whole.pcapng").rename(self._capture)

    def run(self, names: Sequence[str], count: int, seed: int) -> int:
        """Kills that many times; how much was wrong."""
        chance = random.Random(seed)
        undisturbed = {name: self._undisturbed(name) for name in names}
        problems, ends = 0, Counter[str]()
        for number in range(count):
            name = names[number % len(names)]
            took_s, expected = undisturbed[name]
            after_s = chance.uniform(0, took_s)
            end, wrong = self._killed(name, after_s, expected)
            ends[f"{name}: {end}"] += 1
            problems += len(wrong)
            for line in wrong:
                print(f"{name}, killed after {after_s:.3f} of {took_s:.3f} s: {line}", flush=True)
        print(*(f"{end} {times}" for end, times in sorted(ends.items())), sep="\n")
        print(f"{count} kills, {problems} problems")
        return problems

    def _undisturbed(self, name: str) -> tuple[float, dict[str, str]]:
        target = self._folder / f"{name}-undisturbed"
        target.mkdir()
        begun_s = time.monotonic()
        subprocess.run(self._words(name, target), check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - begun_s, found_in(target)

    def _words(self, name: str, target: Path) -> list[str]:
        places = {
            OUTPUT: str(target),
            CAPTURE: str(self._capture),
            RING: str(self._folder / "ring"),
            KEY: str(self._folder / "key"),
        }
        words = list(COMMANDS[name])
        for place, path in places.items():
            words = [word.replace(place, path) for word in words]
        return [sys.executable, "-m", "iscsitrace", *words]

    def _killed(self, name: str, after_s: float, expected: dict[str, str]) -> tuple[str, list[str]]:
        """Whether the kill came in time, and what was wrong after it."""
        target = self._folder / f"{name}-killed"
        target.mkdir()
        command = self._words(name, target)
        with subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(after_s)
            process.kill()
        wrong = [] if is_gone(process.pid) else ["a process of it is left"]
        end = "killed" if process.returncode == -signal.SIGKILL else "had ended"
        wrong += self._half(name, target, expected)
        if name != "ring":
            again = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if again.returncode:
                wrong.append(f"again: exit code {again.returncode}: {again.stderr.strip()}")
            elif (found := found_in(target)) != expected:
                differing = sorted(each for each, _ in found.items() ^ expected.items())
                wrong.append(f"again: not as undisturbed: {differing[:5]}")
        shutil.rmtree(target)
        return end, wrong

    def _half(self, name: str, target: Path, expected: dict[str, str]) -> list[str]:
        """What is under its final name and not whole."""
        if name == "fleet":
            return []
        if name == "ring":
            return self._not_a_beginning(target)
        # unfinished work has names of its own
        found = {path: own for path, own in found_in(target).items() if path in expected}
        return [f"{path} is half written" for path, own in found.items() if own != expected[path]]

    def _not_a_beginning(self, target: Path) -> list[str]:
        files = sorted(path for path in target.glob("*.pcapng") if path.stat().st_size)
        whole = rows_of(self._folder / "ring-undisturbed")
        try:
            found = rows_of(target) if files else []
        except iscsitrace.IscsitraceError as error:
            return [f"the ring cannot be read: {error}"]
        return [] if found == whole[: len(found)] else ["the ring is not the beginning of the whole one"]


def rows_of(folder: Path) -> list[object]:
    """The packets of the files of a ring."""
    files = sorted(path for path in folder.glob("*.pcapng") if path.stat().st_size)
    segments = iscsitrace.read(*files, tables=["segments"]).table("segments")
    return [tuple(row.values()) for row in segments.rows(("frame", "time_ns", "stream_offset_bytes", "payload_bytes"))]


def found_in(folder: Path) -> dict[str, str]:
    """What is in a folder, to compare: of a dataset its rows, else the files."""
    if (data := folder / "data").exists():
        taps = [(name, tap) for name in DEFAULT_TABLES for tap in ("a", "b")]
        return {f"{name} {tap}": digest(repr(rings.rows_of(data, name, tap)).encode()) for name, tap in taps}
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): digest(path.read_bytes()) for path in files}


def digest(content: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(content).hexdigest()


def is_gone(session: int) -> bool:
    """Whether no process of a session is left, after a while."""
    limit_s = time.monotonic() + PATIENCE_S
    while members(session):
        if time.monotonic() > limit_s:
            return False
        time.sleep(0.05)
    return True


def members(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, own = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(own) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    main()
