"""Times `iscsitrace summary`, tshark, tcptrace and cat on the same files, and prints the ratios.

All in one run, warm page cache, the best of three (tshark once: it takes minutes). A whole process is timed, with its
peak memory; the pass alone is `iscsitrace.read` without the tables that grow with PDUs. Events and findings are
compared with the pass that makes their tables, by CPU time, the best of five. A bench, not a test: it always exits with
code 0, and marks a program that is missing or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.process import FOLDER, machine

NAMES = ("sequential", "random", "sessions")
MEMORY_BASE_BYTES, MEMORY_BYTES_PER_PDU = 150_000_000, 150
PASS = """
import sys, time
import iscsitrace
best = float("inf")
for _ in range(3):
    started = time.perf_counter()
    iscsitrace.read(sys.argv[1], tables=())
    best = min(best, time.perf_counter() - started)
print(best)
"""

COSTS = """
import json, sys, time
import iscsitrace
from iscsitrace.analysis import findings
from iscsitrace.analysis.findings.examination import examine
from iscsitrace.analysis.groups import events
from iscsitrace.analysis.groups.events.tables import events as events_of

def timed(work):
    started = time.process_time()
    return work(), time.process_time() - started

best = {}
for _ in range(5):
    # anew each time: a table keeps what was computed of it
    trace, passed = timed(lambda: iscsitrace.read(sys.argv[1], tables=(*findings.NEEDED, *events.NEEDED)))
    _, found = timed(lambda: examine(trace.table))
    _, seen = timed(lambda: events_of(trace.table))
    for name, seconds in (("pass", passed), ("findings", found), ("events", seen)):
        best[name] = min(seconds, best.get(name, seconds))
print(json.dumps(best))
"""


@dataclass(frozen=True)
class Measured:
    """The best time of a process, and the peak memory of that run. None if it failed or is not installed."""

    name: str
    seconds: float | None
    peak_bytes: int | None


def run(name: str, command: list[str], repeats: int, *, is_time_printed: bool = False) -> Measured:
    """Runs a command; discards its output, unless it prints the time."""
    if shutil.which(command[0]) is None:
        return Measured(f"{name} (not installed)", None, None)
    best: Measured | None = None
    for _ in range(repeats):
        started = time.perf_counter()
        stdout = subprocess.PIPE if is_time_printed else subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)
        output = process.stdout.read() if process.stdout else b""
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            return Measured(f"{name} (exit code {process.returncode})", None, None)
        if is_time_printed:
            seconds = float(output)
        if best is None or best.seconds is None or seconds < best.seconds:
            best = Measured(name, seconds, usage.ru_maxrss * 1024)
    assert best is not None
    return best


def measure(file: Path, *, has_tshark: bool) -> dict[str, Measured]:
    """Measures all programs on one file."""
    path = str(file)
    iscsitrace = [sys.executable, "-m", "iscsitrace"]
    results = {
        # the first reading warms the cache
        "cat": run("cat", ["cat", path], 4),
        "pass": run("the pass alone", [sys.executable, "-c", PASS, path], 1, is_time_printed=True),
        "summary": run("iscsitrace summary", [*iscsitrace, "summary", "--no-progress", path], 3),
        "tcptrace": run("tcptrace -n -l -r -W", ["tcptrace", "-n", "-l", "-r", "-W", path], 3),
    }
    if has_tshark:
        results["tshark"] = run("tshark -q -z scsi,srt,0", ["tshark", "-q", "-z", "scsi,srt,0", "-r", path], 1)
    return results


def show(file: Path, results: dict[str, Measured]) -> None:
    """Prints the table of one file."""
    content = json.loads(file.with_suffix(".json").read_text())
    packets, size = content["packets"], content["bytes"]
    print(
        f"\n{file.name}: {size / 1e9:.2f} GB, {packets:,} packets, {content['pdus']:,} PDUs, "
        f"{content['tasks']:,} commands"
    )
    print(f"{'':32}{'seconds':>9}{'packets/s':>13}{'GB/s':>7}{'peak MB':>9}{'x summary':>11}")
    summary = results["summary"].seconds
    for measured in results.values():
        if measured.seconds is None:
            print(f"{measured.name:32}{'-':>9}")
            continue
        ratio = f"{measured.seconds / summary:.2f}" if summary else "-"
        print(
            f"{measured.name:32}{measured.seconds:9.3f}{packets / measured.seconds:13,.0f}"
            f"{size / 1e9 / measured.seconds:7.2f}{(measured.peak_bytes or 0) / 1e6:9.0f}{ratio:>11}"
        )
    cat, alone = results["cat"].seconds, results["pass"].seconds
    if cat and alone:
        print(f"the pass alone takes {alone / cat:.2f} times cat")
    peak = results["summary"].peak_bytes
    if peak:
        limit = MEMORY_BASE_BYTES + MEMORY_BYTES_PER_PDU * content["pdus"]
        print(f"peak memory of summary {peak / 1e6:.0f} MB; limit (150 MB + 150 bytes per PDU) {limit / 1e6:.0f} MB")


def costs(file: Path) -> dict[str, float]:
    """CPU seconds of the pass that makes the tables of events and findings, of the events, and of the findings."""
    output = subprocess.run([sys.executable, "-c", COSTS, str(file)], check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output)
    share = (found["events"] + found["findings"]) / found["pass"]
    print(
        f"events {1000 * found['events']:.0f} ms and findings {1000 * found['findings']:.0f} ms: "
        f"{100 * share:.0f} % of their pass of {1000 * found['pass']:.0f} ms (aim: 10 %)"
    )
    return found


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--no-tshark", action="store_true", help="do not run tshark, which takes minutes")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the full sizes, for files that do not exist yet"
    )
    arguments = parser.parse_args()
    # in a separate process: the peak memory of a child is at least that of its parent at the start
    generate = [sys.executable, "-m", "bench.generate", str(arguments.folder), "--scale", str(arguments.scale)]
    subprocess.run(generate, check=True)
    files = {name: arguments.folder / f"{name}.pcap" for name in NAMES}
    print(f"{machine()}; Python {platform.python_version()}")
    everything = {}
    for name, file in files.items():
        results = measure(file, has_tshark=not arguments.no_tshark)
        show(file, results)
        everything[name] = {key: asdict(value) for key, value in results.items()} | {"costs": costs(file)}
    started = run("iscsitrace --help", [sys.executable, "-m", "iscsitrace", "--help"], 5)
    if started.seconds is not None:
        print(f"\niscsitrace --help: {started.seconds:.3f} s")
    (arguments.folder / "result.json").write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
