"""Time breakdown, idle fraction and limiter against the truth, case by case, with a confusion table.

Runs every case in the simulated world and, as root, in the real one. Prints, and asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import Counter
from pathlib import Path

from bench.budget import runs
from bench.budget.cases import CASES
from bench.budget.losses import Losses
from bench.budget.outcomes import Outcome, outcomes_of
from bench.process import machine

_HEADINGS = "{:42}{:>10}{:>8}{:>8}{:>9}{:>8}  {:57}{:21}{:>7}{:>9}"


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(prog="bench.budget", description=__doc__.splitlines()[0])
    parser.add_argument("--world", choices=runs.WORLDS, action="append", help="run only this world; repeatable")
    parser.add_argument("--case", default="", help="run only cases whose names contain this text")
    arguments = parser.parse_args()
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}")
    for world in arguments.world or runs.WORLDS:
        if world == "real" and os.geteuid() != 0:
            print("the real world needs root")
            continue
        _run_world(world, arguments.case)


def _run_world(world: str, word: str) -> None:
    print(f"\n{world} world; idle in %, errors in percentage points; a part as large as the largest is also correct")
    headings = ("tap", "idle", "payload", "measured", "error", "correct", "reported", "true", "measured")
    print(_HEADINGS.format("case", *headings), flush=True)
    found: list[Outcome] = []
    losses = Losses.none()
    for case in CASES.values():
        if word not in case.name or (world == "real" and not case.is_real):
            continue
        with tempfile.TemporaryDirectory() as folder:
            made = runs.make(case, world, Path(folder))
            of_run = list(outcomes_of(made))
            if made.packets:
                losses.add(made.files, made.packets)
        found += of_run
        for outcome in of_run:
            _show(outcome)
    _show_confusion(found)
    _show_errors(found)
    losses.show()


def _show(outcome: Outcome) -> None:
    case = outcome.case
    cells = (
        outcome.tap,
        f"{100 * outcome.true_idle_of_line:.2f}",
        f"{100 * outcome.true_idle:.2f}",
        f"{100 * outcome.idle:.2f}",
        f"{outcome.error_points:+.2f}{'' if abs(outcome.error_points) <= outcome.allowed_points else '!'}",
        " = ".join(outcome.right),
        outcome.named + ("" if outcome.is_right else " !") + ("" if outcome.is_wait_right else " *"),
        f"{100 * outcome.true_parts.get(outcome.named, 0):.1f}",
        f"{100 * outcome.parts.get(outcome.named, 0):.1f}",
    )
    print(_HEADINGS.format(case.name, *cells), flush=True)
    expected = case.limiters
    if expected and outcome.world == "simulated" and not set(expected) & set(outcome.right):
        print(f"    by arithmetic: {' = '.join(expected)}")


def _show_confusion(found: list[Outcome]) -> None:
    counted = Counter((outcome.named if outcome.is_right else outcome.right[0], outcome.named) for outcome in found)
    names = sorted({name for pair in counted for name in pair})
    print(f"\n{'correct / reported':22}" + "".join(f"{name:>20}" for name in names))
    for right in names:
        print(f"{right:22}" + "".join(f"{counted[right, named] or '':>20}" for named in names))
    wrong = sum(count for (right, named), count in counted.items() if right != named)
    print(f"{sum(counted.values())} at both taps, {wrong} wrong (!)")
    below = sum(not outcome.is_wait_right for outcome in found)
    print(f"largest part other than the line's: {below} wrong (*)")


def _show_errors(found: list[Outcome]) -> None:
    print("\nidle fraction: absolute errors in percentage points")
    for title, is_long in (("one-way delay >= 1 ms", True), ("one-way delay < 1 ms", False)):
        own = [outcome for outcome in found if (outcome.case.delay_ms >= 1) == is_long]
        errors = [outcome.error_points for outcome in own]
        of_line = [100 * (outcome.idle - outcome.true_idle_of_line) for outcome in own]
        for name, values in ((title, errors), (f"{title}, ACKs count as busy", of_line)):
            if values:
                ordered = sorted(abs(value) for value in values)
                print(
                    f"{name:40} median {statistics.median(ordered):.2f}, worst {ordered[-1]:.2f}, "
                    f"over 1: {sum(value > 1 for value in ordered)}, over 3: {sum(value > 3 for value in ordered)} "
                    f"of {len(ordered)}"
                )


if __name__ == "__main__":
    main()
