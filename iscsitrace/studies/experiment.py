"""An experiment from its definition to its folder: points, results beside the model and published values, figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from iscsitrace.errors import InputInvalid, OutputExists
from iscsitrace.fit import regression
from iscsitrace.fit.points import Point
from iscsitrace.lab.namespaces import require_root
from iscsitrace.studies import figures, repeats, results, runner, verdicts
from iscsitrace.studies.definition import ENDING, Definition
from iscsitrace.studies.points import DesignPoint
from iscsitrace.studies.quantities import PointResult
from iscsitrace.studies.results import ArmFit, Results
from iscsitrace.studies.runner import Watch

KEPT: Final = ("figures", "captures", "none")
"""Which captures are kept: those that figures are drawn from, all, or none."""


def prepare(definition: Definition, points: Sequence[DesignPoint], directory: Path, *, is_forced: bool) -> None:
    """Creates the folder, or reuses one in which the same experiment was started; ``is_forced`` starts over. A copy of
    the definition is kept in it, so that the folder is complete.

    OutputExists for a folder with other files; RootNeeded for a world in real time.
    """
    world = points[0].world
    if world != "simulated":
        require_root()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_empty = not any(directory.iterdir())
    except OSError as error:
        raise InputInvalid(f"cannot create {directory}: {error.strerror or error}") from error
    folder = directory / results.POINTS
    if not (is_empty or folder.is_dir() or (directory / results.JSON).is_file()):
        raise OutputExists(f"{directory} has other files in it; use an empty folder")
    if is_forced:
        shutil.rmtree(folder, ignore_errors=True)
        (directory / results.JSON).unlink(missing_ok=True)
    elif (directory / results.JSON).is_file():
        earlier = results.load(directory)
        if (earlier.name, earlier.world) != (definition.name, world):
            raise OutputExists(
                f"{directory} has {earlier.name} in the {earlier.world} world; use another folder, or --force"
            )
    results.write_text(directory / f"{definition.name}{ENDING}", definition.text)


def carry_out(
    definition: Definition,
    points: Sequence[DesignPoint],
    directory: Path,
    watch: Watch,
    *,
    jobs: int,
    keep: str,
    is_reduced: bool = False,
) -> Results:
    """Runs the remaining points and writes ``results.json``, ``results.csv`` and the figures; the results so far."""
    drawn_from = figures.needed(definition, points)
    kept: dict[str, Callable[[DesignPoint], bool]] = {
        "figures": lambda point: point.name in drawn_from,
        "captures": lambda _: True,
        "none": lambda _: False,
    }
    found = runner.run(points, directory, watch, jobs=jobs, kept=kept[keep])
    made = _results(definition, points, found, directory, is_reduced=is_reduced)
    results.write(directory, made)
    return made


def _results(
    definition: Definition,
    points: Sequence[DesignPoint],
    found: Sequence[PointResult],
    directory: Path,
    *,
    is_reduced: bool,
) -> Results:
    rows = repeats.rows(found)
    return Results(
        is_reduced=is_reduced,
        versions=results.versions(points[0].world),
        seeds=results.seeds(points),
        name=definition.name,
        title=definition.title,
        source=definition.source,
        about=definition.about,
        world=points[0].world,
        is_complete=len(found) == len(points),
        point_count=len(points),
        points=tuple(found),
        fits=tuple(_fits(points, found)),
        beside=tuple(verdicts.beside(definition, rows, points[0].world)),
        figures=tuple(figures.draw(definition, points, found, directory)),
        claims=tuple(verdicts.judge(definition.claims, rows, points[0].world)),
        tables=definition.tables,
    )


_DELAY: Final = "link.one-way-delay"
_LEAST_DELAYS: Final = 2


def _fits(points: Sequence[DesignPoint], results: Sequence[PointResult]) -> Iterator[ArmFit]:
    """A fit for each arm, and for each place of the rest of its grid, where at least two delays were measured."""
    by_name = {result.name: result for result in results}
    groups: dict[tuple[str, ...], tuple[dict[str, str], list[Point]]] = {}
    for point in points:
        where = {name: each.text for name, each in point.grid.items() if name != _DELAY}
        _, found = groups.setdefault((point.arm, *where.values()), (where, []))
        result = by_name.get(point.name)
        # without a delay, k cannot be determined
        found += result.steady if result and point.values.get(_DELAY) else ()
    for (arm, *_), (where, found) in groups.items():
        if len({each.setting.delay_ns for each in found}) < _LEAST_DELAYS:
            continue
        try:
            # through JSON, so that it equals what is read back
            yield ArmFit(arm, where, json.loads(json.dumps(regression.fit(found).as_dict())))
        except InputInvalid:
            continue
