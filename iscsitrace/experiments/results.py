"""What an experiment gave, as dataclasses and as files: ``results.json`` for programs and reports, ``results.csv``.

```
DIR/results.json  results.csv  FIGURE.svg ...
DIR/points/POINT/result.json    one finished or failed point; initiator.pcapng, target.pcapng, truth.json where kept
```
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import iscsitrace
from iscsitrace.analysis.fit.points import Point as SteadyPoint
from iscsitrace.errors import InputInvalid
from iscsitrace.experiments.documents import rebuilt
from iscsitrace.experiments.streams import Stream
from iscsitrace.outputs.files import written_aside

RESULTS_SCHEMA: Final = 1
"""Of results.json; it changes when a name in it changes its meaning."""
KIND: Final = "experiment"
JSON, CSV = "results.json", "results.csv"
_CSV_COLUMNS: Final = (
    *("throughput_bytes_per_s", "steady_throughput_bytes_per_s", "period_ns", "idle_fraction", "limiter"),
    *("connections", "converged_s", "goodput_lost", "latency_cv", "connection_spread", "cwnd_spread"),
    *("k", "d_ns", "s_ns", "c_bytes_per_s", "model_throughput_bytes_per_s", "model_period_ns", "model_error"),
    *("efficiency", "cpu_s_per_gigabyte", "target_cpu_s_per_gigabyte"),
    *("jain", "spread_s", "spread_ratio", "retransmission_rate", "utilisation", "timeout_count", "slow_start_rank"),
)


@dataclass(frozen=True)
class Course:
    """Something over the time of a run."""

    name: str
    unit: str
    times_s: tuple[float, ...]
    """Since the first command."""
    values: tuple[float, ...]


@dataclass(frozen=True)
class PointResult:
    """What one point gave. Numbers are None where they are unknown."""

    name: str
    """Its folder below ``points``."""
    arm: str
    grid: dict[str, str]
    """Where in the grid it is: settings as they are written."""
    values: dict[str, Any]
    """All its settings as a run takes them: nanoseconds, bytes, bits a second, words."""
    repeat: int
    digest: str
    error: str | None = None
    """Why it failed, in a line; then nothing else is known."""
    not_run: str | None = None
    """Why this host cannot run it, in a line; that is no failure, and nothing else is known."""
    throughput_bytes_per_s: float | None = None
    """Of all system calls, as the initiator counts it."""
    steady_throughput_bytes_per_s: float | None = None
    """After the warm-up: this is what is plotted, and compared with the model."""
    period_ns: float | None = None
    """From one system call to the next, times queue depth; after the warm-up."""
    call_count: int = 0
    """After the warm-up."""
    efficiency: float | None = None
    """Steady throughput / the rate of the line; None without a rate."""
    cpu_s_per_gigabyte: float | None = None
    """Processor time of the initiator for 10^9 bytes, in the real world."""
    target_cpu_s_per_gigabyte: float | None = None
    """Of our targets."""
    idle_fraction: float | None = None
    """From the initiator's capture, after the warm-up; as all that follows."""
    limiter: str | None = None
    parts_ns: dict[str, float] = field(default_factory=dict)
    """The time budget per system call."""
    k: float | None = None
    """One-way delays of a cycle, by a fit to this capture alone."""
    d_ns: float | None = None
    s_ns: float | None = None
    c_bytes_per_s: float | None = None
    steady: tuple[SteadyPoint, ...] = ()
    """What a fit takes of this capture."""
    connections: int | None = None
    """Where their number was looked for: what was found; None where nothing was, or the search went on at the end."""
    converged_s: float | None = None
    """When it was found first, since the first command."""
    goodput_lost: float | None = None
    """What the whole time had less than the time after the search, as a share of that."""
    latency_cv: float | None = None
    """Standard deviation of the time that a task takes / its mean."""
    connection_spread: float | None = None
    """Standard deviation of throughput over the connections / its mean."""
    cwnd_spread: float | None = None
    """The same of the congestion window's mean over time."""
    courses: tuple[Course, ...] = ()
    """How it went."""
    model: dict[str, Any] | None = None
    """What the model says of the settings: as ``model predict --json``."""
    captures: tuple[str, ...] = ()
    """Files that were kept in its folder."""
    streams: tuple[Stream, ...] = ()
    """By target and connection; as all that follows, from the truth."""
    jain: float | None = None
    """Jain's fairness index of their throughputs."""
    spread_s: float | None = None
    """From the first stream's end to the last one's; None where a clock ended all."""
    spread_ratio: float | None = None
    """What the last one took / what the first one did."""
    retransmission_rate: float | None = None
    """Segments sent again / packets sent, by those who send data."""
    utilisation: float | None = None
    """Share of the time in which the line that the streams share carried bits, after the warm-up."""
    timeout_count: int | None = None
    """Retransmission timeouts of all streams."""
    slow_start_rank: float | None = None
    """Rank correlation of the streams' ends with the windows that slow start left them."""

    @property
    def model_throughput_bytes_per_s(self) -> float | None:
        """Of the model."""
        return None if self.model is None else float(self.model["throughput_bytes_per_s"])

    @property
    def model_period_ns(self) -> float | None:
        """Of the model."""
        return None if self.model is None else float(self.model["period_ns"])

    @property
    def model_error(self) -> float | None:
        """Throughput of the model / measured steady throughput, less 1."""
        if not self.model_throughput_bytes_per_s or not self.steady_throughput_bytes_per_s:
            return None
        return self.model_throughput_bytes_per_s / self.steady_throughput_bytes_per_s - 1


@dataclass(frozen=True)
class ArmFit:
    """The model fitted to all points of an arm that differ only in delay: as ``model fit --json``."""

    arm: str
    where: dict[str, str]
    """The other settings of the grid."""
    fit: dict[str, Any]


@dataclass(frozen=True)
class Beside:
    """A published figure and ours."""

    quantity: str
    unit: str
    source: str
    arm: str
    where: dict[str, str]
    x: str
    """A setting, and its value as it is written."""
    at: str
    published: float
    ours: float | None
    spread: float | None
    """Standard deviation over repeats; None of one run."""


@dataclass(frozen=True)
class JudgedCheck:
    """A number that a claim rests on."""

    quantity: str
    unit: str
    of: str
    """Where it was measured, in words."""
    beside: str
    """Where what it is divided by (in ``times``), or what is taken off, was; empty for a number of its own."""
    value: float | None
    low: float
    high: float
    is_met: bool


@dataclass(frozen=True)
class Evidence:
    """What the captures of a place say."""

    of: str
    """In words."""
    limiter: str
    shares: dict[str, float]
    """Of each part of the time budget, in %."""
    means: dict[str, float]
    """Of the quantities in `claims.SHOWN` that are known, in their units."""


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the study, held against what was measured."""

    name: str
    text: str
    verdict: str
    """``reproduced``, ``partly``, ``not reproduced``, ``not run``, ``not testable here``."""
    why: str
    """Of what was not reproduced, or not tested."""
    checks: tuple[JudgedCheck, ...]
    evidence: tuple[Evidence, ...] = ()
    """Of what was not reproduced, where there are captures."""


@dataclass(frozen=True)
class FigureFile:
    """A picture in the folder of the experiment."""

    name: str
    title: str
    file: str


@dataclass(frozen=True)
class Results:
    """What an experiment gave so far."""

    name: str
    title: str
    source: str
    about: str
    world: str
    is_complete: bool
    """Whether every point was run; some may have failed."""
    point_count: int
    """In all, also those that were not run."""
    points: tuple[PointResult, ...]
    fits: tuple[ArmFit, ...] = ()
    beside: tuple[Beside, ...] = ()
    figures: tuple[FigureFile, ...] = ()
    claims: tuple[JudgedClaim, ...] = ()
    tables: tuple[str, ...] = ()
    """What is wanted beside the tables that all have: of `definition.TABLES`."""
    is_reduced: bool = False
    """Whether it was run at the scale of the real world."""

    @property
    def failed(self) -> tuple[PointResult, ...]:
        """The points that failed."""
        return tuple(point for point in self.points if point.error is not None)

    @property
    def not_run(self) -> tuple[PointResult, ...]:
        """The points that this host cannot run."""
        return tuple(point for point in self.points if point.not_run is not None)


def load(directory: Path) -> Results:
    """The results in the folder of an experiment; InputInvalid when there are none."""
    file = directory / JSON
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if (found.pop("kind"), found.pop("schema")) != (KIND, RESULTS_SCHEMA):
            raise InputInvalid(f"{file} has no results that this version can read")
        del found["tool"]
        return rebuilt(Results, found | {"points": [_whole(each) for each in found["points"]]})
    except OSError as error:
        raise InputInvalid(f"cannot read {file}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputInvalid(f"{file} is no results of an experiment: {error}") from error


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
    """A point that was run before; None when there is none, or not a whole one."""
    try:
        return rebuilt(PointResult, _whole(json.loads(file.read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
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
    rows.writerow(["arm", *grid, "repeat", *_CSV_COLUMNS, "error", "not_run"])
    for point in results.points:
        numbers = [getattr(point, name) for name in _CSV_COLUMNS]
        rows.writerow(
            [point.arm, *(point.grid.get(name) for name in grid), point.repeat, *numbers, point.error, point.not_run]
        )
    return stream.getvalue()


def write_json(file: Path, found: Mapping[str, Any]) -> None:
    """A document, whole or not at all."""
    write_text(file, json.dumps(found, indent=1, allow_nan=False) + "\n")


def write_text(file: Path, text: str) -> None:
    """A text, whole or not at all; InputInvalid when it cannot be written."""
    with written_aside(file) as partial:
        partial.write_text(text, encoding="utf-8")


def _whole(point: dict[str, Any]) -> dict[str, Any]:
    """A point without what follows from the rest of it."""
    return {name: value for name, value in point.items() if name != "model_error"}
