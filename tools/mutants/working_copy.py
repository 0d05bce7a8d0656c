"""Copies of the tree in which mutants are tested, so that the checkout never contains a mutant."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tools.mutants import ROOM, ROOT
from tools.mutants.sample import Mutant

NOT_COPIED = ".git build dist core/target .venv .tools .mypy_cache .ruff_cache .hypothesis".split()
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


def make(name: str) -> str:
    """Make a fresh copy of the tree with this name."""
    shutil.rmtree(ROOM / name, ignore_errors=True)
    left_out = {str(ROOT / path) for path in NOT_COPIED}
    shutil.copytree(
        ROOT,
        ROOM / name,
        symlinks=True,
        ignore=lambda folder, names: [
            each for each in names if f"{folder}/{each}" in left_out or each == "__pycache__"
        ],
    )
    return name


def environment(copy: Path) -> dict[str, str]:
    """The environment of tests in a copy: the recordings are next to the checkout, not next to the copy."""
    captures = os.environ.get("ISCSITRACE_CAPTURES") or str(ROOT.parent / "shared" / "captures")
    return os.environ | {"PYTHONPATH": str(copy), "ISCSITRACE_CAPTURES": captures}


def outcome(copy: Path, mutant: Mutant, tests: list[str], seconds: dict[str, float], seed: int) -> dict[str, Any]:
    """The outcome of a mutant in a copy (killed, survived, timed out), and the test that detected it."""
    begun, file = time.monotonic(), copy / mutant.module
    original = file.read_text()
    limit = 60 + 4 * sum(seconds[test] for test in tests)
    try:
        _write(file, mutant.text)
        what, by = run(copy, tests, limit, seed) if tests else ("survived", "no test executes the line")
    finally:
        _write(file, original)
    change = {"module": mutant.module, "number": mutant.line, "before": mutant.before, "after": mutant.after}
    return change | {"outcome": what, "by": by, "tests": len(tests), "seconds": round(time.monotonic() - begun, 1)}


def _write(file: Path, text: str) -> None:
    """Delete the bytecode too: Python checks only time and size of the source, which may equal the original's."""
    for bytecode in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        bytecode.unlink()
    file.write_text(text)


def run(copy: Path, tests: list[str], limit: float, seed: int) -> tuple[str, str]:
    """The outcome of these tests in a copy, until the first failure, and the test that failed."""
    arguments = copy.with_suffix(".tests")
    arguments.write_text("\n".join(tests))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-rfE",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    command += [f"--hypothesis-seed={seed}", f"@{arguments}"]
    log = copy.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=copy, env=environment(copy), start_new_session=True, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "timed out", f"after {limit:.0f} s"
    noticed = FAILED.findall(log.read_text())
    if noticed:
        return "killed", noticed[0]
    # for example if the mutant changes the names of tests
    return ("not tried", log.read_text().splitlines()[-1]) if code else ("survived", "")
