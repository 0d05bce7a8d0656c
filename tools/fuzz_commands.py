"""Runs reading commands on damaged samples: no traceback, no run over 10 s of CPU time or 500 MB, no output half
written, no control character in it, and no number in tables and JSON that cannot be (tests/support/invariants.py).

``python -m tools.fuzz_commands --count 1000 [--seconds S] [--seed N] [--commands]``: in this process, or each as a
process; none begins after S seconds. A case is a number: the sample, the damage and the command follow from it. Prints
what went wrong, with the number, and exits with 1. Other programs of this machine do not count in CPU time; a process
that does not end in ten minutes is killed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import invariants
from tests.support.measured import usage
from tools.damage import damaged

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = sorted(ROOT.glob("samples/*/capture.pcap*"))
SECONDS_MAX = 10.0
_PATIENCE_S = 600.0
BYTES_MAX = 500_000_000
OUTPUT = "OUTPUT"
CAPTURE = "CAPTURE"
_KINDS = (
    "sequence",
    "window",
    "cycles",
    "latency",
    "time_breakdown",
    "throughput",
    "streams",
    "ladder",
    "path",
    "events",
)
QUICK = (
    *(
        "summary --json CAPTURE",
        "summary CAPTURE",
        "summary --by lun CAPTURE",
        "events CAPTURE",
        "conformance CAPTURE",
        "events --json CAPTURE",
    ),
    *("diagnose --json CAPTURE", "diagnose -v CAPTURE", "cycles CAPTURE", "cycles --json CAPTURE", "mirrors CAPTURE"),
    *("model fit CAPTURE", "model fit --json CAPTURE", "check CAPTURE", "check --json CAPTURE", "diff CAPTURE CAPTURE"),
    *(
        "watch --no-follow --json CAPTURE",
        "watch --no-follow --plain CAPTURE",
        "watch --no-follow --interval 10ms CAPTURE",
    ),
    *("capture -q -r CAPTURE -w OUTPUT.pcapng", "capture -q -r CAPTURE -w OUTPUT.pcapng --trigger latency>5ms"),
    *("capture -s advise -r CAPTURE", "export -o OUTPUT CAPTURE", "export -o OUTPUT --tables segments,budget CAPTURE"),
    *("export --sidecar -o OUTPUT CAPTURE", "anonymise -o OUTPUT.pcapng CAPTURE"),
)
SLOW = (
    *(f"plot {kind} -o OUTPUT.{'svg' if number % 3 else 'png'} CAPTURE" for number, kind in enumerate(_KINDS)),
    *("report -o OUTPUT.html CAPTURE", "export --format parquet -o OUTPUT CAPTURE"),
    "export --format perfetto -o OUTPUT.trace CAPTURE",
)
_SLOW_SHARE = 0.15
_EXIT_CODES = (0, 1, 2, 4)
_ENDINGS = {".png": b"IEND\xaeB`\x82", ".svg": b"</svg>\n", ".html": b"</html>"}


@dataclass(frozen=True)
class Ran:
    """One run: its exit code, what it printed, its CPU time and its peak of memory."""

    code: int
    output: str
    errors: str
    processor_s: float
    peak_bytes: int


def main() -> None:
    """Runs the cases of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no case begins after that")
    parser.add_argument("--seed", type=int, default=1, help="number of the first case")
    parser.add_argument("--commands", action="store_true", help="each as a process")
    options = parser.parse_args()
    problems, codes, begun_s = 0, Counter[int](), time.monotonic()
    slowest_s, most_bytes = 0.0, 0
    for case in range(options.seed, options.seed + options.count):
        if time.monotonic() - begun_s > options.seconds:
            break
        ran, wrong = tried(case, is_process=options.commands)
        codes[ran.code] += 1
        slowest_s, most_bytes = max(slowest_s, ran.processor_s), max(most_bytes, ran.peak_bytes)
        for line in wrong:
            problems += 1
            print(f"case {case}: {line}", flush=True)
    shown = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    print(f"{codes.total()} runs in {time.monotonic() - begun_s:.0f} s: {shown}; {problems} problems")
    print(f"slowest {slowest_s:.1f} s, most memory {most_bytes / 1e6:.0f} MB")
    sys.exit(problems > 0)


def tried(case: int, *, is_process: bool = False) -> tuple[Ran, list[str]]:
    """One case: how it ran, and what was wrong with it."""
    chance = random.Random(case)  # noqa: S311 -- reproducible, no secret
    sample = chance.choice(SAMPLES)
    command = chance.choice(SLOW if chance.random() < _SLOW_SHARE else QUICK)
    with tempfile.TemporaryDirectory(prefix="iscsitrace-fuzz-") as folder:
        capture = Path(folder, f"capture{''.join(sample.suffixes)}")
        capture.write_bytes(damaged(sample.read_bytes(), case, chance.choice(SAMPLES).read_bytes()))
        target = Path(folder, "output")
        words = [word.replace(CAPTURE, str(capture)).replace(OUTPUT, str(target)) for word in command.split()]
        ran = _as_process(words, target) if is_process else _in_process(words)
        wrong = [f"{sample.parent.name}: {command}: {line}" for line in _wrong(ran, words, capture)]
        if not is_process:
            wrong += [f"{sample.parent.name}: {line}" for line in invariants.of_capture(capture)]
    return ran, wrong


def _as_process(words: list[str], folder: Path) -> Ran:
    command = [sys.executable, "-m", "iscsitrace", *words]
    out, err = folder.with_suffix(".out"), folder.with_suffix(".err")
    with out.open("wb") as output, err.open("wb") as errors:
        used = usage(command, patience_s=_PATIENCE_S, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=ROOT)
    printed, said = (file.read_text(errors="replace") for file in (out, err))
    out.unlink()
    err.unlink()
    return Ran(used.code, printed, said, used.processor_s, used.peak_bytes)


def _in_process(words: list[str]) -> Ran:
    from click.testing import CliRunner

    from iscsitrace.cli import main as program

    _forget_peak()
    # what many runs before have left in this process is not of this one
    before_bytes = _status_bytes("VmRSS")
    started_s = time.process_time()
    result = CliRunner().invoke(program, words)
    processor_s = time.process_time() - started_s
    errors = result.stderr
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        errors += f"\nTraceback: {type(result.exception).__name__}: {result.exception}"
    return Ran(result.exit_code, result.stdout, errors, processor_s, _status_bytes("VmHWM") - before_bytes)


def _forget_peak() -> None:
    """Makes the kernel forget this process's peak of memory (proc_pid_clear_refs(5))."""
    Path("/proc/self/clear_refs").write_text("5")


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _wrong(ran: Ran, words: list[str], capture: Path) -> list[str]:
    found = []
    if ran.code not in _EXIT_CODES:
        found.append(f"exit code {ran.code}")
    if "Traceback" in ran.errors + ran.output or "Warning:" in ran.errors:
        found.append(f"printed {ran.errors.strip().splitlines()[-1:]}")
    if found_characters := invariants.harmful(ran.output + ran.errors):
        found.append(f"printed {found_characters}")
    if ran.code == 2 and not ran.errors.strip():
        found.append("no message")
    if ran.processor_s > SECONDS_MAX:
        found.append(f"took {ran.processor_s:.1f} s")
    if ran.peak_bytes > BYTES_MAX:
        found.append(f"took {ran.peak_bytes / 1e6:.0f} MB")
    if "--json" in words and ran.code in (0, 1):
        found += _wrong_json(ran.output, is_lines=words[0] == "watch")
    return found + _wrong_files(ran, capture)


def _wrong_json(output: str, *, is_lines: bool) -> list[str]:
    try:
        for text in output.splitlines() if is_lines else [output]:
            json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        return [f"no JSON: {error}"]
    return []


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _wrong_files(ran: Ran, capture: Path) -> list[str]:
    """Files that are half written, or there although the command failed."""
    found = []
    written = [path for path in sorted(capture.parent.rglob("*")) if path != capture and path.is_file()]
    for path in written:
        if path.name.endswith(".partial"):
            found.append(f"left {path.name}")
        ending = _ENDINGS.get(path.suffix)
        if ending is not None and not path.read_bytes().rstrip().endswith(ending.rstrip()):
            found.append(f"{path.name} is half written")
        # a capture that fails in its input keeps what it wrote before
        if ran.code == 2 and path.suffix in _ENDINGS:
            found.append(f"failed, and left {path.name}")
    return found


if __name__ == "__main__":
    main()
