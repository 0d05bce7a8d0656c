"""How CPU time grows with every count that an input can have, through every command that reads captures.

Each family of captures (`families.py`) has one count, which doubles three times. Every command runs on each capture in
a process that has loaded the command before, so that only work on the capture counts. Prints the exponents: the slope
of the upper three points, both axes logarithmic, without what a sixteenth of the smallest takes. Ends with exit code
1 if one is above 1.2. What takes less than 0.1 s at the largest count is "small": it has no exponent.

``--small`` takes about a minute: only `diagnose`, which reads every table, two counts, the better of two runs, and a
bound that a busy machine keeps. Work that grows with the square does not.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.growth.families import FAMILIES, LACKING, Family, at_the_target

MOST = 1.2
SMALL_S = 0.1
"""CPU time at the largest count from which it has an exponent."""
MOST_OF_TWO = 1.6
"""The same of ``--small``: two is the square."""
SMALL_OF_TWO_S = 0.3
LONG_S = 20.0
"""CPU time of one run after which larger counts are not measured."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "summary": ("summary", "--quiet", "CAPTURE"),
    "cycles": ("cycles", "--quiet", "CAPTURE"),
    "events": ("events", "--quiet", "CAPTURE"),
    "diagnose": ("diagnose", "--quiet", "CAPTURE"),
    "conformance": ("conformance", "--quiet", "CAPTURE"),
    "check": ("check", "--quiet", "CAPTURE"),
    "mirrors": ("mirrors", "--quiet", "CAPTURE"),
    "report": ("report", "--quiet", "--force", "-o", "OUTPUT.html", "CAPTURE"),
    "plot": ("plot", "time_breakdown", "--quiet", "--force", "-o", "OUTPUT.png", "CAPTURE"),
    "plot events": ("plot", "events", "--quiet", "--force", "-o", "OUTPUT.png", "CAPTURE"),
    "plot connections": ("plot", "connections", "--quiet", "--force", "-o", "OUTPUT.png", "CAPTURE"),
    "export": ("export", "--quiet", "--force", "--tables", "ALL", "-o", "OUTPUT", "CAPTURE"),
    "perfetto": ("export", "--quiet", "--force", "--format", "perfetto", "-o", "OUTPUT.perfetto", "CAPTURE"),
    "sidecar": ("export", "--quiet", "--force", "--sidecar", "-o", "OUTPUT", "CAPTURE"),
    "anonymise": ("anonymise", "--quiet", "--force", "-o", "OUTPUT.pcapng", "CAPTURE"),
    "diff": ("diff", "--quiet", "CAPTURE", "CAPTURE"),
    # one interval: each has the work of what is open, and families with more of that are longer
    "watch": ("watch", "--no-follow", "--json", "--interval", "86400s", "CAPTURE"),
    "taps": ("cycles", "--legs", "--quiet", "--tap", "a=CAPTURE", "--tap", "b=TARGET"),
    "fleet": ("fleet", "run", "--workers", "1", "-o", "OUTPUT.fleet", "CAPTURE"),
}
"""Arguments of every command; CAPTURE and OUTPUT are replaced, ALL by the names of all tables, and TARGET by
the capture of another tap."""


@dataclass
class Growth:
    """What one command took for the captures of a family."""

    family: str
    command: str
    counts: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    small_s: float = SMALL_S
    most: float = MOST
    peak_bytes: list[int] = field(default_factory=list)

    @property
    def exponent(self) -> float | None:
        """The slope of the upper points; none if the work is small."""
        upper = [(math.log(count), math.log(s)) for count, s in zip(self.counts, self.cpu_s, strict=True) if s > 0]
        if self.cpu_s[-1] < self.small_s or len(upper) < 2:
            return None
        upper = upper[-3:]
        x, y = sum(count for count, _ in upper) / len(upper), sum(s for _, s in upper) / len(upper)
        return sum((a - x) * (b - y) for a, b in upper) / sum((a - x) ** 2 for a, _ in upper)

    @property
    def is_worse(self) -> bool:
        """Whether it grows faster than it may."""
        return (self.exponent or 0) > self.most

    def __str__(self) -> str:
        exponent = "small" if self.exponent is None else f"{self.exponent:.2f}"
        mark = " <" if self.is_worse else ""
        took = " ".join(f"{s:7.2f}" for s in self.cpu_s)
        peak = max(self.peak_bytes) / 1e6
        return f"{self.family:26}{self.command:18}{self.counts[-1]:8} {took:32} s{peak:6.0f} MB  {exponent}{mark}"


def _run(arguments: Sequence[str]) -> None:
    """The command in this process."""
    from iscsitrace.cli import main

    with suppress(SystemExit):
        main(list(arguments), standalone_mode=False)


def _arguments(command: str, capture: Path, folder: Path) -> list[str]:
    from iscsitrace.tables.schema import TABLES

    places = {"CAPTURE": str(capture), "ALL": ",".join(TABLES), "OUTPUT": str(folder / "output")}
    if command == "taps":
        places["TARGET"] = str(at_the_target(capture))
    words = list(COMMANDS[command])
    for place, text in places.items():
        words = [word.replace(place, text) for word in words]
    return words


def _measured(arguments: Sequence[str]) -> tuple[float, int]:
    """CPU time and peak memory of a command in a child, which has loaded what its parent has."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code, errors = 1, os.fdopen(os.dup(2), "w")
        try:
            _discard_output()
            _run(arguments)
            code = 0
        except BaseException:
            traceback.print_exc(file=errors)
            errors.flush()
        finally:
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(arguments)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def _discard_output() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def growth(name: str, family: Family, command: str, folder: Path, scale: float, is_small: bool) -> Growth:
    """Measures a command on the captures of a family."""
    found = Growth(name, command)
    times, runs = [1, 2, 4, 8], 1
    if is_small:
        found.small_s, found.most = SMALL_OF_TWO_S, MOST_OF_TWO
        times, runs = [2, 8], 2
    least = max(1, round(family.least * scale))

    def arguments(count: int) -> list[str]:
        capture = folder / f"{name}-{count}.pcap"
        return _arguments(command, capture if capture.exists() else family.write(capture, count), folder)

    _run_loading(arguments(least))
    start_s = min(_measured(arguments(max(1, least // 16)))[0] for _ in range(2))
    for count in (least * each for each in times):
        cpu_s, peak_bytes = min(_measured(arguments(count)) for _ in range(runs))
        found.counts.append(count)
        found.cpu_s.append(max(cpu_s - start_s, 0.0))
        found.peak_bytes.append(peak_bytes)
        if cpu_s > LONG_S:
            break
    return found


def _run_loading(arguments: Sequence[str]) -> None:
    """The command in this process, for what it loads; its output is discarded."""
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    _discard_output()
    try:
        _run(arguments)
    finally:
        sys.stdout.flush()
        for descriptor, own in enumerate(kept, 1):
            os.dup2(own, descriptor)
            os.close(own)


def main() -> int:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this family; repeatable")
    parser.add_argument("--command", action="append", choices=list(COMMANDS), help="only this command; repeatable")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full counts")
    parser.add_argument("--small", action="store_true", help="the form that tests run")
    arguments = parser.parse_args()
    worse = []
    with tempfile.TemporaryDirectory(prefix="growth") as temporary:
        folder = Path(temporary)
        for name in arguments.family or FAMILIES:
            for command in arguments.command or (("diagnose",) if arguments.small else COMMANDS):
                if command in LACKING.get(name, ()):
                    continue
                found = growth(name, FAMILIES[name], command, folder, arguments.scale, arguments.small)
                print(found, flush=True)
                if found.is_worse:
                    worse.append(found)
            for capture in folder.glob(f"{name}-*"):
                shutil.rmtree(capture) if capture.is_dir() else capture.unlink()
    if worse:
        print("\nGrows too fast:", *worse, sep="\n")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
