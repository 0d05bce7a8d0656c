"""The sample of mutants in Rust: cargo-mutants lists and tests them, in separate copies."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

from tools.mutants import ROOM, ROOT

MODULES = ("dynamics/**", "budget/**", "tables/**", "tcp/**", "iscsi/**", "live/**")
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
    return [_row(outcome, output) for outcome in outcomes if outcome["scenario"] != "Baseline"]


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
