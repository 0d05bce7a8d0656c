"""How CPU time grows with every count that an input can have, through every command that reads captures.

Each family of captures (`families.py`) has one count, which doubles three times. Every command runs on each capture in
a process that has loaded the command before, so that only work on the capture counts. Prints the exponents: the slope
of three points, both axes logarithmic. Each is what a count adds to the smallest, without the fixed cost, such as that
of the pictures of a report. An exponent above 1.2 is measured again, and each point is the better of both. Ends with
exit code 1 if one is above 1.2 still. Where the largest count adds less than 0.3 s, the work is "small": it has no
exponent, which would be that of the machine's noise.

``--small`` takes half a minute: only `diagnose`, which reads every table, two counts, and a bound that a busy machine
keeps. Work that grows with the square does not.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.growth.families import LACKING, Family
from bench.growth.hosts import FAMILIES
from bench.growth.wire import at_the_target

MOST = 1.2
SMALL_S = 0.3
"""CPU time at the largest count, above that of the start, from which it has an exponent."""
MOST_OF_TWO = 1.6
"""The same of ``--small``: two is the square."""
LONG_S = 20.0
"""CPU time of one run after which larger counts are not measured."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "summary": ("summary", "--quiet", "CAPTURE"),
    "cycles": ("cycles", "--quiet", "CAPTURE"),
    "events": ("events", "--quiet", "CAPTURE"),
    "diagnose": ("diagnose", "--quiet", "CAPTURE"),
    "diagnose --json": ("diagnose", "--quiet", "--json", "CAPTURE"),
    "conformance": ("conformance", "--quiet", "CAPTURE"),
    "check": ("check", "--quiet", "CAPTURE"),
    "mirrors": ("mirrors", "--quiet", "CAPTURE"),
    "report": ("report", "--quiet", "--force", "-o", "OUTPUT.html", "CAPTURE"),
    "plot": ("plot", "time_breakdown", "--quiet", "--force", "-o", "OUTPUT.png", "CAPTURE"),
    "plot events": ("plot", "events", "--quiet", "--force", "-o", "OUTPUT.png", "CAPTURE"),
    "plot connections": ("plot", "connections", "--quiet", "--force", "-o", "OUTPUT.png", "CAPTURE"),
    "plot latency": ("plot", "latency", "--quiet", "--force", "-o", "OUTPUT.png", "CAPTURE"),
    "plot throughput": ("plot", "throughput", "--quiet", "--force", "-o", "OUTPUT.png", "CAPTURE"),
    "fit": ("model", "fit", "--quiet", "CAPTURE"),
    "export": ("export", "--quiet", "--force", "--tables", "ALL", "-o", "OUTPUT", "CAPTURE"),
    "perfetto": ("export", "--quiet", "--force", "--format", "perfetto", "-o", "OUTPUT.perfetto", "CAPTURE"),
    "sidecar": ("export", "--quiet", "--force", "--sidecar", "-o", "OUTPUT", "CAPTURE"),
    "anonymise": ("anonymise", "--quiet", "--force", "-o", "OUTPUT.pcapng", "CAPTURE"),
    "diff": ("diff", "--quiet", "CAPTURE", "CAPTURE"),
    # one interval: each has a little work for each connection that is open, of which a live pass keeps 4,096 at most,
    # and families with more of them last longer
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
    """Above that of the start."""
    start: int = 0
    """The count of which the fixed cost is taken."""
    most: float = MOST
    peak_bytes: list[int] = field(default_factory=list)

    @property
    def exponent(self) -> float | None:
        """The slope of the upper points; none if the work is small."""
        points = zip(self.counts, self.cpu_s, strict=True)
        upper = [(math.log(count - self.start), math.log(s)) for count, s in points if s > 0]
        if self.cpu_s[-1] < SMALL_S or len(upper) < 2:
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
    least = max(1, round(family.least * scale))

    def arguments(count: int) -> list[str]:
        capture = folder / f"{name}-{count}.pcap"
        return _arguments(command, capture if capture.exists() else family.write(capture, count), folder)

    # with two points the square would not be twice as steep without a smaller start
    start, most = (max(1, least // 16), MOST_OF_TWO) if is_small else (least, MOST)
    _run_loading(arguments(start))
    runs: dict[int, list[tuple[float, int]]] = defaultdict(list)

    def measured() -> Growth:
        """Of one more run of each count."""
        for count in (start, *(least * each for each in ((2, 8) if is_small else (2, 4, 8)))):
            # a dataset would have the captures of the runs before
            _remove(folder.glob("output*"))
            runs[count].append(_measured(arguments(count)))
            if runs[count][-1][0] > LONG_S:
                break
        best = {count: min(each) for count, each in runs.items()}
        start_s, _ = best.pop(start)
        cpu_s = [max(each - start_s, 0.0) for each, _ in best.values()]
        return Growth(name, command, list(best), cpu_s, start, most, [peak for _, peak in best.values()])

    found = measured()
    return measured() if found.is_worse else found


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


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


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
            _remove(folder.glob(f"{name}-*"))
    if worse:
        print("\nGrows too fast:", *worse, sep="\n")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
