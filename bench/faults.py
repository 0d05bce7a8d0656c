"""Headlines of faults and near misses against what each run had, with a confusion table.

Makes every run of `tests/support/fault_runs.py` in the simulated world and, as root, in namespaces: three settings
each, at both taps. Prints what is wrong; the exit code is 1 if anything is. One run each: a machine that is too busy
makes links late, and a run that is not the one that was wanted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from bench.process import machine
from iscsitrace.cli import main as command
from iscsitrace.lab.faults.fault import NAMESPACES, SIMULATED
from tests.support.fault_runs import COMMANDS, FAULTS, NEAR_MISSES, SETTINGS, TAPS, Run, wrong
from tests.support.lab import going_first

# a run of the slowest rates takes a tenth of a processor, most of it at its start
_AT_ONCE = {SIMULATED: os.cpu_count() or 1, NAMESPACES: 4 * (os.cpu_count() or 1)}
_NO_RUN = "no run"


@dataclass(frozen=True)
class Case:
    """A run in a world and a setting."""

    world: str
    setting: str
    run: Run


@dataclass(frozen=True)
class Outcome:
    """What the diagnosis of a run said."""

    case: Case
    headlines: dict[str, str]
    """By tap."""
    wrong: dict[str, list[str]]
    """As text, by tap."""
    late_ms: float
    """How late its link sent a frame at most; 0 in the simulated world."""


def main() -> int:
    """Runs the bench; its exit code."""
    parser = argparse.ArgumentParser(prog="bench.faults", description=__doc__.splitlines()[0])
    parser.add_argument("--world", choices=COMMANDS, action="append", help="only this world; repeatable")
    parser.add_argument("--setting", choices=SETTINGS, action="append", help="only this setting; repeatable")
    parser.add_argument("--run", action="append", help="only the run of this name; repeatable")
    parser.add_argument("--at-once", type=int, help="runs at the same time")
    parser.add_argument("-o", dest="folder", type=Path, help="keep the files of runs with a wrong headline here")
    arguments = parser.parse_args()
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}")
    is_right = True
    for world in arguments.world or COMMANDS:
        if world == NAMESPACES and os.geteuid() != 0:
            print("namespaces need root")
            continue
        cases = [
            Case(world, setting, run)
            for run in (*FAULTS, *NEAR_MISSES)
            for setting in arguments.setting or SETTINGS
            if run.name in (arguments.run or (run.name,))
        ]
        is_right &= _run_world(world, cases, arguments.at_once or _AT_ONCE[world], arguments.folder)
    return 0 if is_right else 1


def _run_world(world: str, cases: list[Case], at_once: int, folder: Path | None) -> bool:
    print(f"\n{world}: {len(cases)} runs, {at_once} at the same time", flush=True)
    began_s = time.monotonic()
    found = []
    # forked: a process that imports its modules would delay the hosts of the other runs
    with multiprocessing.get_context("fork").Pool(at_once) as pool:
        for outcome in pool.imap_unordered(_outcome, [(case, folder) for case in cases]):
            found.append(outcome)
            _show(outcome)
    _show_confusion(found)
    wrong_count = sum(bool(lines) for outcome in found for lines in outcome.wrong.values())
    late_ms = sorted(outcome.late_ms for outcome in found)
    print(
        f"{len(TAPS) * len(found)} at both taps, {wrong_count} wrong; {time.monotonic() - began_s:.0f} s; latest frame "
        f"of a run: median {late_ms[len(late_ms) // 2]:.1f} ms, worst {late_ms[-1]:.1f} ms"
    )
    return not wrong_count


def _outcome(wanted: tuple[Case, Path | None]) -> Outcome:
    case, kept = wanted
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        words = [*case.run.words(case.setting, case.world), "-o", str(folder), "--quiet"]
        # as the tests of the real world
        with going_first() if case.world == NAMESPACES else nullcontext():
            result = CliRunner().invoke(command, words)
        if not (folder / "truth.json").exists():
            reason = result.output.strip() or repr(result.exception)
            return Outcome(case, dict.fromkeys(TAPS, _NO_RUN), {tap: [reason] for tap in TAPS}, 0)
        truth = json.loads((folder / "truth.json").read_text())
        documents = {tap: _diagnosis(folder / f"{tap}.pcapng") for tap in TAPS}
        headlines = {tap: str(document["headline"]["name"]) for tap, document in documents.items()}
        errors = {tap: wrong(case.run.wanted(tap, case.world), document, truth) for tap, document in documents.items()}
        errors["initiator"] += [f"{name} hit nothing" for name in case.run.missed(truth)]
        if kept and any(errors.values()):
            _keep(folder, kept / f"{case.run.name}-{case.setting}-{case.world}")
    return Outcome(case, headlines, errors, _late_ms(truth))


def _diagnosis(capture: Path) -> dict[str, Any]:
    result = CliRunner().invoke(command, ["diagnose", "--json", str(capture)], catch_exceptions=False)
    return dict(json.loads(result.stdout))


def _late_ms(truth: dict[str, Any]) -> float:
    return max((log["lateness"]["max_ns"] / 1e6 for log in truth.get("path_process", ())), default=0.0)


def _keep(folder: Path, kept: Path) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        (kept / file.name).write_bytes(file.read_bytes())


def _show(outcome: Outcome) -> None:
    case = outcome.case
    cells = [f"{outcome.headlines[tap]}{' !' if outcome.wrong[tap] else ''}" for tap in TAPS]
    late = f"late {outcome.late_ms:.1f} ms" if outcome.late_ms else ""
    print(f"{case.run.name:28}{case.setting:6}{case.run.wanted(TAPS[0]):22}{cells[0]:24}{cells[1]:24}{late}")
    for tap, lines in outcome.wrong.items():
        for line in lines:
            print(f"    {tap}: {line}")
    sys.stdout.flush()


def _show_confusion(found: Iterable[Outcome]) -> None:
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome in found:
        for tap in TAPS:
            counted[outcome.case.run.wanted(tap, outcome.case.world)][outcome.headlines[tap]] += 1
    print(f"\n{'wanted':22}{'at taps':>8}  headlines")
    for wanted, named in sorted(counted.items()):
        print(f"{wanted:22}{named.total():>8}  {', '.join(f'{count} {name}' for name, count in named.most_common())}")


if __name__ == "__main__":
    sys.exit(main())
