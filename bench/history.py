"""Speed and memory of a revision beside cat, tcptrace and tshark in the same run; a row for each in bench/history.csv.

    python -m bench.history                                   measures the working tree; adds no row
    python -m bench.history --commit HEAD                     measures a commit, and adds its row
    python -m bench.history --commit HEAD --against c2a539cb  measures both alternately, and prints their ratios
    python -m bench.history --show                            prints the rows, and marks what became slower

A number is the median of several rounds. In each round every program reads the same files from a warm page cache, one
after the other, so a ratio compares what ran within seconds; where it is allowed, at real-time priority, so that other
load disturbs little. Of cat and of the passes, which take a fraction of a second, the best of three counts in a round.
tshark takes a minute and runs in the first round only. A ratio has two columns: elapsed time and CPU time. Less is
better in every column. Rows are added, never changed. A bench, not a test: a program that is missing or fails leaves
its numbers empty.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bench.process import FOLDER, CommandFailed, Cost, cost, machine
from bench.revision import WORKING_TREE, Revision, made

HISTORY = Path(__file__).with_name("history.csv")
SLOWER = 1.05
"""A number this many times the least of earlier commits is marked."""
SHOWN_COMMITS = 8
LIMIT_S = 60.0
"""Several times what any program but tshark takes; in old revisions a diagnosis grows with the square of sessions."""

CAPTURES = {
    "sequential": "sequential.pcap",
    "random": "random.pcap",
    "sessions": "sessions-10000x50.pcap",
    "fewer_open": "sessions-10000x1.pcap",
    "more_open": "sessions-60000x1.pcap",
}
"""Of bench.generate and bench.many."""
FEWER_OPEN, MORE_OPEN = 10_000, 60_000

# a small capture before: the first pass of a process imports what reads
_PASS = """
import json, os, sys, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the commands do
import iscsitrace
tables = sys.argv[1].split()
iscsitrace.read(os.path.join(os.path.dirname(sys.argv[2]), "sessions-100x50.pcap"), tables=tables)
started = time.perf_counter(), time.process_time()
iscsitrace.read(sys.argv[2], tables=tables)
print(json.dumps([time.perf_counter() - started[0], time.process_time() - started[1]]))
"""
# by the names that they have in every revision
_DIAGNOSIS_TABLES = "budget recoveries retransmissions senders write_starts"
_COMMAND = [sys.executable, "-m", "iscsitrace"]
OURS = {
    "pass": [sys.executable, "-c", _PASS, ""],
    "diagnosis_pass": [sys.executable, "-c", _PASS, _DIAGNOSIS_TABLES],
    "summary": [*_COMMAND, "summary", "--quiet"],
    "diagnose": [*_COMMAND, "diagnose", "--quiet"],
}
"""The bare pass, without tables that are filled on request; the pass with the tables of a diagnosis; commands."""
_PASSES = ("pass", "diagnosis_pass")
RIVALS = {
    "cat": ["cat"],
    "tcptrace": ["tcptrace", "-n", "-l", "-r", "-W"],
    "tshark": ["tshark", "-q", "-z", "scsi,srt,0", "-r"],
}

_LARGE = ("sequential", "random")
_PLAN = (
    *((capture, program, 3) for capture in _LARGE for program in ("cat", *_PASSES)),
    *((capture, program, 1) for capture in _LARGE for program in ("tcptrace", "summary", "diagnose", "tshark")),
    *(("sessions", program, 1) for program in ("cat", "tcptrace", "diagnosis_pass", "diagnose")),
    *((capture, "diagnosis_pass", 1) for capture in ("fewer_open", "more_open")),
)
"""A round, with how often each program is run. cat also warms the page cache."""

Round = dict[tuple[str, str], Cost]
"""What each program took on each capture."""


@dataclass(frozen=True)
class Number:
    """A column of the history."""

    name: str
    of: Callable[[Round], float]
    """Its value in one round. Raises KeyError if a program was not run."""

    def values(self, rounds: Sequence[Round]) -> list[float]:
        """Its value in each round that has one."""
        found = []
        for each in rounds:
            try:
                found.append(self.of(each))
            except KeyError:
                continue
        return found


def _ratios(capture: str, program: str, rival: str) -> Iterator[Number]:
    """Time of ours per time of the other's."""
    ours, other, name = (capture, program), (capture, rival), f"{capture}_{program}_per_{rival}"
    yield Number(name, lambda costs: costs[ours].elapsed_s / costs[other].elapsed_s)
    yield Number(f"{name}_cpu", lambda costs: costs[ours].cpu_s / costs[other].cpu_s)


def _peak(capture: str, program: str) -> Number:
    return Number(f"{capture}_{program}_mb", lambda costs: costs[capture, program].peak_bytes / 1e6)


def _open_connection_kb(costs: Round) -> float:
    """By how much the peak grows with each connection that is open until the end, at one command each."""
    grown_bytes = costs["more_open", "diagnosis_pass"].peak_bytes - costs["fewer_open", "diagnosis_pass"].peak_bytes
    return grown_bytes / (MORE_OPEN - FEWER_OPEN) / 1e3


NUMBERS = (
    *(number for capture in _LARGE for program in _PASSES for number in _ratios(capture, program, "cat")),
    *(
        number
        for capture in _LARGE
        for program in ("summary", "diagnose")
        for rival in ("tcptrace", "tshark")
        for number in _ratios(capture, program, rival)
    ),
    *(number for program in ("diagnosis_pass", "diagnose") for number in _ratios("sessions", program, "tcptrace")),
    Number("sessions_diagnose_s", lambda costs: costs["sessions", "diagnose"].elapsed_s),
    *(_peak(capture, program) for capture in _LARGE for program in OURS),
    *(_peak("sessions", program) for program in ("diagnosis_pass", "diagnose")),
    Number("open_connection_kb", _open_connection_kb),
)
_NAMES = tuple(number.name for number in NUMBERS)
_WIDTH = max(map(len, _NAMES)) + 1
COLUMNS = ("commit", "committed_at", "measured_at", "machine", "load", "rounds", *_NAMES)


@dataclass(frozen=True)
class Row:
    """One measured commit."""

    commit: str
    committed_at: str
    measured_at: str
    machine: str
    load: float
    """Load average of the minute before, per core: what else ran."""
    rounds: int
    numbers: dict[str, float]
    """By name; without those that could not be measured."""

    @classmethod
    def of(cls, cells: dict[str, str]) -> Row:
        """A line of the file."""
        numbers = {name: float(cells[name]) for name in _NAMES if cells.get(name)}
        commit, committed_at, measured_at, machine = (cells[name] for name in COLUMNS[:4])
        return cls(commit, committed_at, measured_at, machine, float(cells["load"]), int(cells["rounds"]), numbers)

    def cells(self) -> list[str]:
        """The line of the file."""
        numbers = [f"{self.numbers[name]:.4g}" if name in self.numbers else "" for name in _NAMES]
        head = [self.commit, self.committed_at, self.measured_at, self.machine, f"{self.load:.2f}", str(self.rounds)]
        return head + numbers


def read(file: Path) -> list[Row]:
    """All rows. Raises ValueError if its columns are not those of this bench."""
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(
                f"{file}: the columns must be {','.join(COLUMNS)}; add new ones at the end of the first line"
            )
        return [Row.of(cells) for cells in reader]


def append(file: Path, row: Row) -> None:
    """Adds a row behind the others."""
    is_new = not read(file)
    with file.open("a" if file.exists() else "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        if is_new and file.stat().st_size == 0:
            writer.writerow(COLUMNS)
        writer.writerow(row.cells())


def chosen(rows: Sequence[Row], name: str) -> list[Row]:
    """The rows of one machine in order of their commits; of several for a commit the one measured at the least load."""
    best: dict[str, Row] = {}
    for row in rows:
        if row.machine == name and (row.commit not in best or row.load <= best[row.commit].load):
            best[row.commit] = row
    return sorted(best.values(), key=lambda row: datetime.fromisoformat(row.committed_at))


def slower(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """(commit, number) -> times the least of earlier commits, where it is more than SLOWER. Slow creep shows, too."""
    found = {}
    least: dict[str, float] = {}
    for row in rows:
        for name, value in row.numbers.items():
            if name in least and value > SLOWER * least[name]:
                found[row.commit, name] = value / least[name]
            least[name] = min(value, least.get(name, value))
    return found


def show(rows: Sequence[Row]) -> None:
    """Prints the latest commits of each machine, a column for each."""
    for name in dict.fromkeys(row.machine for row in rows):
        of_machine = chosen(rows, name)
        marks = slower(of_machine)
        last = of_machine[-SHOWN_COMMITS:]
        print(f"{name}\n\n{'commit':{_WIDTH}}{''.join(f'{row.commit:>18}' for row in last)}")
        print(f"{'committed':{_WIDTH}}{''.join(f'{row.committed_at[:10]:>18}' for row in last)}")
        print(f"{'load at the start, per core':{_WIDTH}}{''.join(f'{row.load:18.2f}' for row in last)}")
        for number in _NAMES:
            cells = (_cell(row.numbers.get(number), marks.get((row.commit, number))) for row in last)
            print(f"{number:{_WIDTH}}{''.join(cells)}")
        print()


def _cell(value: float | None, times: float | None) -> str:
    shown = "-" if value is None else f"{value:.4g}"
    return f"{shown if times is None else f'+{100 * (times - 1):.0f} % {shown}':>18}"


def _better(one: Cost, other: Cost) -> Cost:
    """The lesser times of two runs; the higher peak."""
    elapsed_s, cpu_s = min(one.elapsed_s, other.elapsed_s), min(one.cpu_s, other.cpu_s)
    return Cost(elapsed_s, cpu_s, max(one.peak_bytes, other.peak_bytes))


class Bench:
    """Rounds over the captures of a folder, of one revision or of two alternately."""

    def __init__(self, folder: Path, revisions: Sequence[Revision]) -> None:
        self._folder = folder
        self._revisions = revisions
        self.rounds: dict[Revision, list[Round]] = {revision: [] for revision in revisions}
        self._failed: set[tuple[str, str, str]] = set()

    def round(self, *, has_tshark: bool) -> None:
        """Runs every program; the revisions in the opposite order of the round before."""
        number = len(self.rounds[self._revisions[0]])
        order = self._revisions[:: 1 if number % 2 == 0 else -1]
        costs: dict[Revision, Round] = {revision: {} for revision in self._revisions}
        for capture, program, tries in _PLAN:
            if program == "tshark" and not has_tshark:
                continue
            runners: Sequence[Revision | None] = [None] if program in RIVALS else order
            for runner in [*runners] * tries:
                took = self._run(runner, capture, program)
                if took:
                    for revision in (runner,) if runner else order:
                        before = costs[revision].get((capture, program), took)
                        costs[revision][capture, program] = _better(took, before)
        for revision, each in costs.items():
            self.rounds[revision].append(each)

    def _run(self, revision: Revision | None, capture: str, program: str) -> Cost | None:
        """None if it fails, and it is not tried again."""
        of = revision.name if revision else ""
        if (of, capture, program) in self._failed:
            return None
        command = [*(OURS | RIVALS)[program], str(self._folder / CAPTURES[capture])]
        try:
            took = cost(
                command,
                environment=revision.environment if revision else None,
                has_output=program in _PASSES,
                limit_s=None if program == "tshark" else LIMIT_S,
            )
        except (CommandFailed, FileNotFoundError) as error:
            print(f"{of} {program}, {CAPTURES[capture]}: {error}".strip(), file=sys.stderr)
            self._failed.add((of, capture, program))
            return None
        if program in _PASSES:
            elapsed_s, cpu_s = json.loads(took.output)
            return replace(took, elapsed_s=elapsed_s, cpu_s=cpu_s)
        return took

    def numbers(self, revision: Revision) -> dict[str, float]:
        """The median of each number that was measured."""
        values = {number.name: number.values(self.rounds[revision]) for number in NUMBERS}
        return {name: statistics.median(each) for name, each in values.items() if each}

    def show(self) -> None:
        """Prints the median, least and most of each number; of two revisions also those of the first per the second."""
        heads = [revision.name for revision in self._revisions]
        if len(heads) > 1:
            heads.append(f"per {heads[1]}")
        print(f"{'median (least to most)':{_WIDTH}}{''.join(f'{head:>30}' for head in heads)}")
        for number in NUMBERS:
            columns = [number.values(self.rounds[revision]) for revision in self._revisions]
            if len(columns) > 1:
                columns.append([one / other for one, other in zip(columns[0], columns[1], strict=False) if other])
            print(f"{number.name:{_WIDTH}}{''.join(f'{_spread(values):>30}' for values in columns)}")


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def go_first() -> None:
    """Gives this process and those that it starts the CPU before all others, where that is allowed."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def make_captures(folder: Path) -> None:
    """Makes what is missing, in separate processes: the peak memory of a child is at least that of its parent."""
    subprocess.run([sys.executable, "-m", "bench.generate", str(folder)], check=True)
    subprocess.run([sys.executable, "-m", "bench.many", str(folder), "--make"], check=True)


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="of the captures, made if missing")
    parser.add_argument(
        "--commit", help="measure this commit, and add its row; default: the working tree, without a row"
    )
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit alternately, and add its row, too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-tshark", action="store_true", help="do not run tshark, which takes a minute")
    parser.add_argument("--history", type=Path, default=HISTORY, help="the file of the rows")
    parser.add_argument("--show", action="store_true", help="only print the rows")
    arguments = parser.parse_args()
    if arguments.show:
        show(read(arguments.history))
        return
    read(arguments.history)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    measured_at = datetime.now(UTC).isoformat(timespec="seconds")
    revisions = [made(arguments.commit) if arguments.commit else WORKING_TREE]
    if arguments.against:
        revisions.append(made(arguments.against))
    make_captures(arguments.folder)
    go_first()
    print(f"{machine()}; load {load:.2f} per core; {arguments.rounds} rounds", flush=True)
    bench = Bench(arguments.folder, revisions)
    for number in range(arguments.rounds):
        bench.round(has_tshark=number == 0 and not arguments.no_tshark)
    bench.show()
    for revision in revisions:
        if revision is not WORKING_TREE:
            numbers = bench.numbers(revision)
            row = Row(revision.name, revision.committed_at, measured_at, machine(), load, arguments.rounds, numbers)
            append(arguments.history, row)


if __name__ == "__main__":
    main()
