"""Diagnoses of runs whose settings nobody chose, against what the logs of each run show.

``python -m bench.unseen --seed S --count N`` draws N runs. It prints how often the headline is right at each tap and
at both together, how often both taps say the same, a confusion table, and each miss with the command that repeats it.
Settings that a rule was looked at with are of no more use: take another seed then. `acceptance` says what is right. The
exit code is 1 if a share is below its aim.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Final

from bench.process import machine
from bench.unseen import outcome
from bench.unseen.judging import BOTH
from bench.unseen.outcome import TAPS, Maker, Outcome
from iscsitrace.errors import IscsitraceError

WORLDS: Final[Mapping[str, Maker]] = {"simulated": outcome.of_simulated, "guests": outcome.of_guests}
_AIMS: Final = {"simulated": (0.97, 0.99), "guests": (0.93, 0.97)}
"""Shares right, and equal at both taps."""
_COUNTS: Final = {"simulated": 500, "guests": 60}


def main() -> int:
    """Runs the bench; its exit code."""
    parser = argparse.ArgumentParser(prog="bench.unseen", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help=f"runs; {_COUNTS} if not given".replace("'", ""))
    parser.add_argument("--world", choices=WORLDS, default="simulated")
    parser.add_argument("--jobs", type=int, help="runs at the same time: one for each processor, of guests one")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write a row for each run")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this run alone, with all that is known of it")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="with --only: keep captures and truth here")
    arguments = parser.parse_args()
    made = partial(_judged, arguments.world, arguments.seed)
    if arguments.only is not None:
        found = made(arguments.only, arguments.keep)
        print(found if isinstance(found, str) else "\n".join(found.story()))
        return int(isinstance(found, str) or not all(found.is_right(tap) for tap in TAPS))
    began_s = time.monotonic()
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}; {arguments.world}, seed {arguments.seed}", flush=True)
    jobs = arguments.jobs or (1 if arguments.world == "guests" else os.cpu_count())
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        results = list(pool.map(made, range(arguments.count or _COUNTS[arguments.world])))
    outcomes = [each for each in results if isinstance(each, Outcome)]
    show(outcomes)
    for error in (each for each in results if isinstance(each, str)):
        print(f"no run: {error}")
    print(f"{len(outcomes)} runs in {time.monotonic() - began_s:.0f} s")
    if arguments.csv:
        _save(outcomes, arguments.csv)
    return int(not outcomes or not reaches(outcomes, *_AIMS[arguments.world]))


def _judged(world: str, seed: int, number: int, keep: Path | None = None) -> Outcome | str:
    with tempfile.TemporaryDirectory() as folder:
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
        try:
            return WORLDS[world](seed, number, keep or Path(folder))
        except (IscsitraceError, RuntimeError) as error:
            return f"{number}: {error}"
        except Exception:
            # a draw that breaks the bench or the analysis is a finding, too
            return f"{number}: {traceback.format_exc(limit=-3)}"


def rates(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Shares of runs: right at each tap, at both together, and equal at both taps."""
    found = {tap: mean(each.is_right(tap) for each in outcomes) for tap in TAPS}
    return found | {"equal": mean(each.is_equal for each in outcomes)}


def reaches(outcomes: Sequence[Outcome], right: float, equal: float) -> bool:
    """Whether the shares reach these aims."""
    found = rates(outcomes)
    return all(found[tap] >= right for tap in TAPS) and found["equal"] >= equal


def show(outcomes: Sequence[Outcome]) -> None:
    """Prints the misses, the confusion table, the widths and the shares."""
    if not outcomes:
        return
    misses = [each for each in outcomes if not each.is_equal or not all(each.is_right(tap) for tap in TAPS)]
    for each in misses:
        print(each.miss())
    _show_confusion(outcomes)
    shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in rates(outcomes).items())
    print(f"{len(outcomes)} runs: {shares}; limiter right at both taps {_limiters(outcomes):.1f} %")


def _limiters(outcomes: Sequence[Outcome]) -> float:
    known = [each for each in outcomes if each.shares]
    return 100 * mean(each.is_limiter_right for each in known) if known else 0.0


def _show_confusion(outcomes: Iterable[Outcome]) -> None:
    """Per class: runs, how many names are right on average, shares right, and what was said at single taps."""
    classes: defaultdict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        classes[each.accepted.label].append(each)
    print(f"\n{'true class':18}{'runs':>6}{'names':>7}" + "".join(f"{tap:>11}" for tap in TAPS) + f"{'equal':>8}  said")
    for label, own in sorted(classes.items(), key=lambda item: -len(item[1])):
        said = Counter(
            f"{each.said[tap].name}{'' if each.is_right(tap) else ' !'}" for each in own for tap in TAPS if tap != BOTH
        )
        width = mean(len(each.accepted.names) for each in own)
        found = rates(own)
        print(
            f"{label:18}{len(own):6}{width:7.1f}"
            + "".join(f"{100 * found[tap]:11.0f}" for tap in TAPS)
            + f"{100 * found['equal']:8.0f}  "
            + ", ".join(f"{count} {name}" for name, count in said.most_common())
        )
    print("names: how many headlines are right, on average; !: said where it is wrong\n")


def _save(outcomes: Iterable[Outcome], file: Path) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(
            ("number", "drawn", "class", "right", *TAPS, *(f"is_right_{tap}" for tap in TAPS), "is_equal", "truth")
        )
        for each in outcomes:
            said = [str(each.said[tap]) for tap in TAPS]
            flags = [each.is_right(tap) for tap in TAPS]
            right = "|".join(each.accepted.names)
            writer.writerow(
                (each.number, each.kind, each.accepted.label, right, *said, *flags, each.is_equal, each.summary)
            )


if __name__ == "__main__":
    sys.exit(main())
