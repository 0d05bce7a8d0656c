"""``python -m tools.mutants`` tests a random sample of mutants in Python and in Rust, and prints which survived.

`make mutants` sets MUTANTS and RUST_MUTANTS, the sizes of the two samples, and SEED, the random seed. WORKERS mutants
are tested at the same time, with the tests in TESTS (folders and files; all by default).
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

from tools.mutants import ROOM, ROOT, rust
from tools.mutants.lines import Lines
from tools.mutants.sample import Mutant, draw
from tools.mutants.working_copy import make, outcome


def main() -> None:
    """Test both samples, write the report and print it."""
    size, rust_size, seed = (int(os.environ.get(name) or 0) for name in ("MUTANTS", "RUST_MUTANTS", "SEED"))
    ROOM.mkdir(parents=True, exist_ok=True)
    workers = int(os.environ.get("WORKERS") or os.cpu_count() or 1)
    rows = (python_rows(size, seed, workers) if size else []) + (
        rust.rows(rust_size, seed, workers) if rust_size else []
    )
    explain(rows, (ROOT / "tools" / "mutants_survivors.toml").read_text())
    (ROOM / "report.json").write_text(json.dumps({"seed": seed, "mutants": rows}, indent=1) + "\n")
    print("\n".join(report(rows)))


def python_rows(size: int, seed: int, workers: int) -> list[dict[str, Any]]:
    """Outcomes of a sample of mutants in Python, each tested in one of the working copies."""
    copies: Queue[str] = Queue()
    for number in range(workers):
        copies.put(make(f"copy-{number}"))
    lines = Lines.measured(ROOM / "copy-0", (os.environ.get("TESTS") or "tests").split(), workers, seed)

    def tested(mutant: Mutant) -> dict[str, Any]:
        copy = copies.get()
        try:
            row = outcome(ROOM / copy, mutant, lines.tests_of(mutant.module, mutant.line), lines.seconds, seed)
        finally:
            copies.put(copy)
        print(f"{row['outcome']} after {row['seconds']} s: {mutant.module}:{mutant.line}", file=sys.stderr, flush=True)
        return row

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(tested, draw(size, seed)))


def explain(rows: list[dict[str, Any]], survivors: str) -> None:
    """Add the reason for which a known survivor is accepted."""
    entries = tomllib.loads(survivors).get("survivor", [])
    reasons = {(entry["module"], entry["line"], entry["mutation"]): entry["reason"] for entry in entries}
    for row in rows:
        row["reason"] = reasons.get((row["module"], row["before"], row["after"]))


def report(rows: list[dict[str, Any]]) -> list[str]:
    """Lines to print: every mutant, survivors last with their change, and the counts."""
    lines = []
    for row in sorted(rows, key=lambda row: (row["outcome"] == "survived", row["module"], row["number"])):
        lines.append(f"{row['outcome']:10}{row['module']}:{row['number']}  {row['by']}")
        if row["outcome"] == "survived":
            lines += [f"          - {row['before']}", f"          + {row['after']}"]
            lines += [f"          accepted: {row['reason']}"] if row["reason"] else []
    for language, ending in (("Python", ".py"), ("Rust", ".rs")):
        count = Counter(row["outcome"] for row in rows if row["module"].endswith(ending))
        if count:
            outcomes = ", ".join(f"{number} {what}" for what, number in sorted(count.items()))
            lines.append(f"{language}: {count.total()} mutants: {outcomes}; generated pages not counted")
    return lines


if __name__ == "__main__":
    main()
