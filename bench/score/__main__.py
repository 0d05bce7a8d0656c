"""How near the analysis of senders is to all truth there is: a score as a CSV file, and what a change did to it.

Sources are the recordings of kernels beside the repository (or in ISCSITRACE_CAPTURES), public captures for their
headlines alone, and settings drawn by a seed in the simulated world. The same code writes the same bytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.recordings import Recording, recordings
from bench.score import settings
from bench.score.comparison import VERDICTS, Change, Comparison, compare, load, save, shared, totals
from bench.score.known import PUBLIC, RunKnown, of_case, of_recording
from bench.score.rows import QUANTITIES, TEXTS, Row, of_run
from tests.support.recordings import SUFFIXES, captures_folder

_QUICK_COUNT = 40
_PROCESSES = 2
_FOLDERS = ("", "slow")
"""Of recordings, below the folder of captures."""

Task = Recording | Path | int
"""A recording, a public capture, or the number of a setting."""


def main() -> int:
    """Makes the score; the exit code is 1 if something is worse than in the other score."""
    parser = argparse.ArgumentParser(prog="bench.score", description=__doc__.splitlines()[0])
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE", help="write the score here")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with this score")
    parser.add_argument(
        "--set",
        type=int,
        default=0,
        metavar="N",
        help=f"the N-th {settings.COUNT} simulated settings, without recordings; 0 is what rules are compared on",
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"only {_QUICK_COUNT} of the {settings.COUNT} simulated settings"
    )
    arguments = parser.parse_args()
    first = arguments.set * settings.COUNT
    simulated = range(first, first + (_QUICK_COUNT if arguments.quick else settings.COUNT))
    tasks = [*(() if arguments.set else _recorded()), *simulated]
    with ProcessPoolExecutor(_PROCESSES) as pool:
        rows = [row for found in pool.map(_scored, tasks) for row in found]
    against = load(arguments.against) if arguments.against else None
    if arguments.output:
        save(rows, arguments.output)
    changes: tuple[Change, ...] = ()
    if against is not None:
        before, after = shared(against, rows)
        found = compare(before, after)
        changes = found.changes
        _show(found)
        print("\nbefore, of the same runs\n" + "\n".join(totals(before)))
    print("\nnow\n" + "\n".join(totals(rows)))
    return int(any(each.verdict in {"worse", "gone"} for each in changes))


def _recorded() -> Iterator[Recording | Path]:
    folder = captures_folder()
    if not folder.is_dir():
        print(f"there are no recordings in {folder}: simulated settings alone")
    for name in _FOLDERS:
        yield from recordings(folder / name)
    yield from sorted(file for file in (folder / PUBLIC).glob("*") if file.name.endswith(SUFFIXES))


def _scored(task: Task) -> Sequence[Row]:
    if isinstance(task, Recording):
        return list(of_run(of_recording(task)))
    if isinstance(task, Path):
        return list(of_run(RunKnown(PUBLIC, task.name, {"": task})))
    with tempfile.TemporaryDirectory() as folder:
        try:
            known = of_case(settings.of_number(task), Path(folder), seed=task)
        except RuntimeError as error:
            # a command timed out
            print(f"left out: {error}")
            return []
        return list(of_run(known))


def _show(found: Comparison) -> None:
    print(f"{'quantity':22}" + "".join(f"{name:>8}" for name in VERDICTS) + "   noise  good to  meaning")
    for name, quantity in QUANTITIES.items():
        counts = [found.counts[name, each] for each in VERDICTS]
        print(
            f"{name:22}"
            + "".join(f"{count or '':>8}" for count in counts)
            + f"   {quantity.noise:<7}{'' if quantity.limit is None else quantity.limit:<9}{quantity.meaning}"
        )
    for kind in ("worse", "gone"):
        for each in found.changes:
            if each.verdict == kind:
                print(f"{kind}: {each}")
    for text in TEXTS:
        print(f"{text}: {found.counts[text, 'changed']} changed")
        for each in found.changes:
            if each.quantity == text:
                print(f"    {each}")
    for name in found.unmatched:
        print(f"in one score only: {name}")


if __name__ == "__main__":
    sys.exit(main())
