"""The sample of mutants in Rust: cargo-mutants lists and tests them, in separate copies, with the tests of the crate.

What survives is built into a copy of the package, and tested with the tests in Python of what the core reads.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from tools.mutants import ROOM, ROOT
from tools.mutants.working_copy import make, run

MODULES = ("senders/**", "budget/**", "tables/**", "tcp/**", "iscsi/**", "live/**")
# in this order, up to the first that fails
TESTS = (
    *("tables", "cli/test_printed_tables.py", "findings/test_diagnosis_captures.py", "cli/test_cli.py"),
    *("watch/test_watch.py", "measure/test_budget_cases.py", "wireshark", "recording/test_capture_drops.py"),
)
LIMIT_S = 1200
OUTCOMES = {"CaughtMutant": "killed", "MissedMutant": "survived", "Timeout": "timed out", "Unviable": "not built"}
FAILED = re.compile(r"^test (\S+) \.\.\. FAILED$", re.MULTILINE)


def rows(size: int, seed: int, jobs: int) -> list[dict[str, Any]]:
    """Outcomes of a sample of the mutants of the trace crate, with the tests of the crate."""
    select = ["--package", "iscsitrace-trace", *(f"--file=trace/src/{module}" for module in MODULES)]
    count = len(json.loads(_cargo_mutants("--list", "--json", *select).stdout))
    # every n-th mutant from a random one on: filters by name miss some kinds of mutants
    step = max(1, count // size)
    first = random.Random(seed).randrange(step)  # noqa: S311 (a sample, not a secret)
    drawn = [f"--shard={first}/{step}", "--sharding=round-robin"]
    limits = ["--minimum-test-timeout=60", "--timeout-multiplier=5", f"--jobs={jobs}"]
    _cargo_mutants(*select, *drawn, *limits, f"--output={ROOM / 'rust'}", "--", "--locked", "--tests", captured=False)
    output = ROOM / "rust" / "mutants.out"
    outcomes = json.loads((output / "outcomes.json").read_text())["outcomes"]
    tested = [outcome for outcome in outcomes if outcome["scenario"] != "Baseline"]
    return _tested_again(
        [_row(outcome, output) for outcome in tested], [output / each["diff_path"] for each in tested], seed, jobs
    )


def _tested_again(rows: list[dict[str, Any]], diffs: list[Path], seed: int, jobs: int) -> list[dict[str, Any]]:
    """The rows, where the tests in Python have decided on the survivors."""
    copies: Queue[str] = Queue()
    for number in range(jobs):
        copies.put(make(f"rust-{number}"))
    first = copies.get()
    if (found := _in_python(ROOM / first, seed))[0] != "survived":
        raise RuntimeError(f"without a mutant: {found}, see {ROOM / first}.log")
    copies.put(first)

    def again(row: dict[str, Any], diff: Path) -> dict[str, Any]:
        if row["outcome"] != "survived":
            return row
        copy = copies.get()
        file = ROOM / copy / row["module"]
        original = file.read_text()
        try:
            subprocess.run(["patch", "--silent", str(file), str(diff)], check=True)
            what, by = _in_python(ROOM / copy, seed)
        finally:
            file.write_text(original)
            copies.put(copy)
        print(f"{what} by {by}: {row['module']}:{row['number']}", file=sys.stderr, flush=True)
        return row | {"outcome": what, "by": by}

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(again, rows, diffs))


def _in_python(copy: Path, seed: int) -> tuple[str, str]:
    """The outcome of the tests in Python in a copy whose core is built first: quicker to build than a release."""
    target = copy.with_suffix(".target")
    settings = {"CARGO_TARGET_DIR": str(target), "CARGO_PROFILE_DEV_OPT_LEVEL": "1", "PYO3_PYTHON": sys.executable}
    command = ["cargo", "build", "--quiet", "--locked", "--package=iscsitrace-python"]
    subprocess.run(command, cwd=copy / "core", env=os.environ | settings, check=True)
    shutil.copy(target / "debug" / "lib_core.so", copy / "iscsitrace" / "_core.abi3.so")
    return run(copy, ["-m", "not needs_root", *(f"tests/{path}" for path in TESTS)], LIMIT_S, seed)


def _cargo_mutants(*arguments: str, captured: bool = True) -> subprocess.CompletedProcess[str]:
    # copies with a shared target folder would overwrite each other's builds
    environment = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"} | {
        "TMPDIR": str(ROOM)
    }
    command = ["cargo", "mutants", "--dir", str(ROOT / "core"), *arguments]
    # its exit code is not 0 when mutants survive
    return subprocess.run(command, env=environment, capture_output=captured, text=True, check=captured)


def _row(outcome: dict[str, Any], output: Path) -> dict[str, Any]:
    mutant = outcome["scenario"]["Mutant"]
    failed = FAILED.search((output / outcome["log_path"]).read_text())
    place = mutant["span"]["start"]["line"]
    module = f"core/{mutant['file']}"
    before = (ROOT / module).read_text().splitlines()[place - 1].strip()
    change = mutant["name"].split(": ", 1)[1]
    seconds = round(sum(phase["duration"] for phase in outcome["phase_results"]), 1)
    result = {"outcome": OUTCOMES[outcome["summary"]], "by": failed[1] if failed else "", "seconds": seconds}
    return {"module": module, "number": place, "before": before, "after": change} | result
