"""The records of the studies that come with the package: what a whole run of each measured.

A record keeps the places of the grid that a printed value, a claim or a figure of the page refers to, the agreement
with the model over all places, and what made them: command, versions, seeds. A place is recognised by the digest of its
settings. When a definition changes a setting, its old numbers no longer count, and the place is not run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.studies import repeats, results
from iscsitrace.studies.definition import WORLDS, Definition
from iscsitrace.studies.points import DesignPoint, of_experiment
from iscsitrace.studies.repeats import MeasuredValue, Row
from iscsitrace.studies.results import Results, write_text

FOLDER: Final = Path(__file__).parent / "recorded"
KIND, SCHEMA = "record", 1
_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True)
class ModelAgreement:
    """The model against measured throughputs: sizes of the differences, as shares of the measured ones."""

    count: int
    median: float
    p90: float
    largest: float


@dataclass(frozen=True)
class RecordedPlace:
    """The repeats of a place of the grid."""

    name: str
    """The arm and its settings, for people."""
    digest: str
    """A hash of the settings of all its repeats."""
    run_count: int
    failed_count: int
    estimates: dict[str, MeasuredValue]
    """The quantities that the definition refers to, in their units."""
    model: dict[str, float] = field(default_factory=dict)
    """What the model predicts of them."""


@dataclass(frozen=True)
class RecordedRun:
    """An experiment in one world."""

    world: str
    is_reduced: bool
    command: str
    versions: dict[str, str]
    seeds: tuple[int, ...]
    point_count: int
    failed_count: int
    model: ModelAgreement | None
    places: tuple[RecordedPlace, ...]


@dataclass(frozen=True)
class Record:
    """The runs of an experiment, at most one a world."""

    name: str
    runs: tuple[RecordedRun, ...]
    kind: str = KIND
    schema: int = SCHEMA


def load(name: str, folder: Path = FOLDER) -> Record:
    """The record of an experiment; one without runs where there is none. InputInvalid when it cannot be read."""
    file = folder / f"{name}.json"
    if not file.is_file():
        return Record(name, ())
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputInvalid(f"{file} is not the record of an experiment: {error}") from error
    if (found.kind, found.schema) != (KIND, SCHEMA):
        raise InputInvalid(f"{file} is a record that this version cannot read")
    return found


def of_world(name: str, world: str, folder: Path = FOLDER) -> RecordedRun | None:
    """The recorded run of an experiment in a world, at its full scale there; None without one."""
    return next((run for run in load(name, folder).runs if run.world == world and not run.is_reduced), None)


def keep(definition: Definition, found: Results, folder: Path = FOLDER) -> Path:
    """Records a complete run; it replaces an earlier one of the same world. The file.

    InputInvalid for a run that is not complete, or whose definition has changed since.
    """
    if not found.is_complete:
        raise InputInvalid(f"{found.name} is not complete: {len(found.points)} of {found.point_count} points ran")
    kept = [
        run for run in load(found.name, folder).runs if (run.world, run.is_reduced) != (found.world, found.is_reduced)
    ]
    runs = sorted((*kept, _run(definition, found)), key=lambda run: (run.world != WORLDS[0], run.world, run.is_reduced))
    folder.mkdir(exist_ok=True)
    file = folder / f"{found.name}.json"
    write_text(file, json.dumps(asdict(Record(found.name, tuple(runs))), indent=1, allow_nan=False) + "\n")
    return file


def _run(definition: Definition, found: Results) -> RecordedRun:
    points = of_experiment(definition, found.world, is_reduced=found.is_reduced)
    if {point.digest for point in points} != {point.digest for point in found.points}:
        raise InputInvalid(f"the definition of {found.name} has changed since: run it again, finished points are kept")
    rows = repeats.rows(found.points)
    digests = _digests(points)
    wanted = _wanted(definition, rows)
    return RecordedRun(
        world=found.world,
        is_reduced=found.is_reduced,
        command=results.command(found.name, found.world, is_reduced=found.is_reduced),
        versions=found.versions,
        seeds=found.seeds,
        point_count=len(found.points),
        failed_count=len(found.failed),
        model=agreement(rows),
        places=tuple(
            RecordedPlace(
                name=row.name,
                digest=digests[row.arm, *row.grid.values()],
                run_count=row.run_count,
                failed_count=row.failed_count,
                estimates={name: each for name, each in row.estimates.items() if name in wanted[place]},
                model={name: each for name, each in row.model.items() if name in wanted[place]},
            )
            for place, row in enumerate(rows)
            if place in wanted
        ),
    )


def agreement(rows: Sequence[Row]) -> ModelAgreement | None:
    """The model against the throughputs of all rows that have both; None without one."""
    errors = [abs(row.model_error) for row in rows if row.model_error is not None]
    if not errors:
        return None
    half, most = (float(each) for each in np.percentile(errors, (50, 90)))
    return ModelAgreement(len(errors), half, most, max(errors))


def _wanted(definition: Definition, rows: Sequence[Row]) -> dict[int, set[str]]:
    """The quantities that the definition refers to, by the number of their row."""
    numbers = {id(row): number for number, row in enumerate(rows)}
    found: dict[int, set[str]] = {}
    for quantity, row in _referred(definition, rows):
        found.setdefault(numbers[id(row)], set()).add(quantity)
    return found


def _referred(definition: Definition, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """Each quantity and row that a printed value, a check or a figure of the page refers to."""
    for published in definition.published:
        for row, *_ in repeats.places(published, rows, definition):
            if row is not None:
                yield published.quantity, row
    checks = [(claim, check) for claim in definition.claims for check in claim.checks]
    for claim, check in checks:
        for _, spot in check.spots:
            row = repeats.row_at(rows, spot.arm, claim.place(spot))
            if row is not None:
                yield check.quantity, row
    for figure in definition.drawn_on_page:
        yield from ((figure.y, row) for row in rows if figure.shows(row.arm, row.values) and figure.x in row.values)


def rows_of(definition: Definition, run: RecordedRun) -> list[Row]:
    """The recorded places that the definition still has, as rows."""
    found = []
    known = {place.digest: place for place in run.places}
    points = of_experiment(definition, run.world, is_reduced=run.is_reduced)
    digests = _digests(points)
    for point in points:
        grid = {name: each.text for name, each in point.grid.items()}
        place = known.pop(digests[point.arm, *grid.values()], None)
        if place is not None:
            counts = place.run_count, place.failed_count
            found.append(Row(point.arm, grid, point.values, *counts, place.estimates, place.model, None))
    return found


def _digests(points: Sequence[DesignPoint]) -> dict[tuple[str, ...], str]:
    """A hash of arm, place and the settings of all repeats, by arm and place; several arms may have equal settings."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for point in points:
        groups.setdefault((point.arm, *(each.text for each in point.grid.values())), []).append(point.digest)
    return {
        place: hashlib.sha256("\n".join((*place, *found)).encode()).hexdigest()[:_DIGEST_DIGITS]
        for place, found in groups.items()
    }
