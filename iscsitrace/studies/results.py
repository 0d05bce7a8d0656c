"""The results of an experiment, as dataclasses and as files: ``results.json`` and ``results.csv``.

```
DIR/results.json  results.csv  FIGURE.svg ...
DIR/points/POINT/result.json    one finished or failed point; initiator.pcapng, target.pcapng, truth.json where kept
```
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

import iscsitrace
from iscsitrace.errors import InputInvalid
from iscsitrace.show.files import written_aside
from iscsitrace.studies.definition import WORLDS
from iscsitrace.studies.points import DesignPoint
from iscsitrace.studies.quantities import PointResult, columns

_SHOWN_SEEDS: Final = 3


def command(name: str, world: str, *, is_reduced: bool = False) -> str:
    """The command that repeats all of it."""
    options = ["" if world == WORLDS[0] else f" --world {world}", " --reduced" if is_reduced else ""]
    return f"iscsitrace lab run {name}{''.join(options)} -o DIR"


def versions(world: str) -> dict[str, str]:
    """Versions of what a run depends on; with the kernel's TCP also its version, and how busy the machine is."""
    found = {
        "iscsitrace": iscsitrace.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
    }
    if world == WORLDS[0]:
        return found
    load = f"{os.getloadavg()[2]:.1f} on {os.cpu_count()} processors"
    # without the suffix, which names a build
    release = re.match(r"[\d.]*\d", platform.release())
    return found | {platform.system(): release[0] if release else "", "load average": load}


def seeds(points: Iterable[DesignPoint]) -> tuple[int, ...]:
    """The seeds of its runs, one for each repeat of a point."""
    return tuple(sorted({int(point.run_settings["world"]["seed"]) for point in points}))


def seeds_text(found: tuple[int, ...]) -> str:
    """Seeds as text: all of them, or the first and the last."""
    if len(found) <= _SHOWN_SEEDS:
        return ", ".join(map(str, found))
    return f"{found[0]}, {found[1]} ... {found[-1]}"


RESULTS_SCHEMA: Final = 1
"""The version of results.json; it changes when a name in it changes its meaning."""
KIND: Final = "experiment"
JSON, CSV = "results.json", "results.csv"
POINTS: Final = "points"
"""The folder with a folder for each point."""
RESULT: Final = "result.json"


@dataclass(frozen=True)
class ArmFit:
    """The model fitted to all points of an arm that differ only in delay: as ``model fit --json``."""

    arm: str
    where: dict[str, str]
    """The other settings of the grid."""
    fit: dict[str, Any]


@dataclass(frozen=True)
class Beside:
    """A published value and the measured one."""

    quantity: str
    unit: str
    source: str
    arm: str
    where: dict[str, str]
    x: str
    """A setting, and its value as the definition writes it."""
    at: str
    published: float
    """In the unit of the quantity."""
    ours: float | None
    spread: float | None
    """Standard deviation over repeats; None for a single run."""
    run_count: int = 0
    """Repeats of the measured one."""
    interval: tuple[float, float] | None = None
    """Its 95 % confidence interval; None for a single run."""
    verdict: str = ""
    """``reproduced``, ``undecided``, ``not reproduced``, ``not run``, ``not compared``."""
    why: str = ""
    """The note on a value that is not reproduced or not compared."""
    is_computed: bool = False
    """Whether the published value is computed from what the study prints."""
    printed: str = ""
    """The published value and its unit, as they are printed."""


@dataclass(frozen=True)
class JudgedCheck:
    """A measured number of a claim, and its limits."""

    quantity: str
    unit: str
    of: str
    """The place where it was measured, in words; two for a difference that is divided."""
    beside: str
    """The same of what it is divided by (in ``times``), or what is subtracted; empty for a number on its own."""
    value: float | None
    low: float
    high: float
    is_met: bool
    """Whether the value alone is within the limits."""
    is_undecided: bool = False
    """Whether its confidence interval has a limit in it: the repeats are too few to decide."""
    run_count: int = 0
    """Repeats; of two places, those of the one with fewer, among places that were repeated."""
    interval: tuple[float, float] | None = None
    """The 95 % confidence interval; None for a single run."""


@dataclass(frozen=True)
class PlaceEvidence:
    """What the captures of a place show."""

    of: str
    """The place, in words."""
    limiter: str
    shares: dict[str, float]
    """Each part of the time breakdown, in %."""
    means: dict[str, float]
    """The known quantities of `verdicts.SHOWN`, in their units."""


@dataclass(frozen=True)
class JudgedClaim:
    """A claim, checked against measurements."""

    name: str
    text: str
    verdict: str
    """``reproduced``, ``undecided``, ``partly``, ``not reproduced``, ``not run``, ``not testable here``."""
    why: str
    """The note on a claim that is not reproduced or not testable."""
    checks: tuple[JudgedCheck, ...]
    evidence: tuple[PlaceEvidence, ...] = ()
    """For a claim that is not reproduced, where there are captures."""
    is_own: bool = False
    """Whether it is a claim of this project, and not of the study."""


@dataclass(frozen=True)
class FigureFile:
    """A figure in the folder of the experiment."""

    name: str
    title: str
    file: str
    others: tuple[str, ...] = ()
    """The same in other formats, and its numbers (CSV)."""


@dataclass(frozen=True)
class Results:
    """The results of an experiment so far."""

    name: str
    title: str
    source: str
    about: str
    world: str
    is_complete: bool
    """Whether every point ran; some may have failed."""
    point_count: int
    """All points."""
    points: tuple[PointResult, ...]
    fits: tuple[ArmFit, ...] = ()
    beside: tuple[Beside, ...] = ()
    figures: tuple[FigureFile, ...] = ()
    claims: tuple[JudgedClaim, ...] = ()
    tables: tuple[str, ...] = ()
    """Tables beside those of every experiment: of `definition.TABLES`."""
    is_reduced: bool = False
    """Whether it ran at the scale of the real world."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of what ran."""
    seeds: tuple[int, ...] = ()

    @property
    def failed(self) -> tuple[PointResult, ...]:
        """The points that failed."""
        return tuple(point for point in self.points if point.error is not None)


def load(directory: Path) -> Results:
    """The results in the folder of an experiment; InputInvalid when there are none."""
    file = directory / JSON
    try:
        found = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        if (found.get("kind"), found.get("schema")) != (KIND, RESULTS_SCHEMA):
            raise InputInvalid(f"{file} has no results that this version can read")
        return msgspec.convert(found, Results)
    except OSError as error:
        raise InputInvalid(f"cannot read {file}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputInvalid(f"{file} is not the results of an experiment: {error}") from error


def document(results: Results) -> dict[str, Any]:
    """``results.json``."""
    first = {
        "schema": RESULTS_SCHEMA,
        "tool": {"name": "iscsitrace", "version": iscsitrace.__version__},
        "kind": KIND,
    }
    return first | asdict(results) | {"points": [point_document(each) for each in results.points]}


def point_document(point: PointResult) -> dict[str, Any]:
    """``result.json`` of a point."""
    return asdict(point) | {"model_error": point.model_error}


def read_point(file: Path) -> PointResult | None:
    """The result of a point that ran before; None when there is none, or it was cut short."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=PointResult)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def write(directory: Path, results: Results) -> None:
    """``results.json`` and ``results.csv``, each whole or not at all."""
    write_json(directory / JSON, document(results))
    write_text(directory / CSV, table(results))


def table(results: Results) -> str:
    """``results.csv``: a row a point; grid and arm first, times in ns, empty where unknown."""
    grid = list(dict.fromkeys(name for point in results.points for name in point.grid))
    stream = io.StringIO()
    rows = csv.writer(stream, lineterminator="\n")
    names = columns()
    rows.writerow(["arm", *grid, "repeat", *names, "error"])
    for point in results.points:
        numbers = [getattr(point, name) for name in names]
        rows.writerow([point.arm, *(point.grid.get(name) for name in grid), point.repeat, *numbers, point.error])
    return stream.getvalue()


def write_json(file: Path, found: Mapping[str, Any]) -> None:
    """A document, whole or not at all."""
    write_text(file, json.dumps(found, indent=1, allow_nan=False) + "\n")


def write_text(file: Path, text: str) -> None:
    """A text, whole or not at all; InputInvalid when it cannot be written."""
    with written_aside(file, has_hosts=False) as partial:
        partial.write_text(text, encoding="utf-8")
