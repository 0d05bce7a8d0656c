"""The report on an experiment: its outcome, figures and tables, from its folder alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

import iscsitrace
from iscsitrace.experiments import catalogue, claims, comparison, figures, results, tables
from iscsitrace.experiments.comparison import Row
from iscsitrace.experiments.definition import Definition
from iscsitrace.experiments.definition_claims import GUESTS
from iscsitrace.experiments.points import of_experiment
from iscsitrace.experiments.results import Results
from iscsitrace.outputs.document import Section
from iscsitrace.plots import inline, style
from iscsitrace.report.document import Document, Fact, Outcome, Picture

_SHOWN_LIMITERS: Final = 3
_NAMESPACES: Final = "The kernel's TCP in network namespaces"


def is_folder(path: Path) -> bool:
    """Whether a path is the folder of an experiment."""
    return (path / results.JSON).is_file()


def describe(directory: Path, *, has_pictures: bool = True) -> Document:
    """The report as a document; InputInvalid when the folder lacks the results or their definition."""
    found = results.load(directory)
    definition = catalogue.load(str(directory / f"{found.name}{catalogue.ENDING}"))
    looks = inline.Looks()
    pictures = tuple(_pictures(definition, found, directory, looks)) if has_pictures else ()
    return Document(
        title=found.title,
        subtitle=f"{found.name}, {found.world} world; source: {found.source}",
        lead=None,
        others=None,
        pictures=pictures,
        sections=(
            Section("Results", grids=tuple(tables.of(found)), identity="results"),
            Section("How this was made", tuple(_making(definition, found)), identity="making"),
        ),
        outcome=_outcome(definition, found),
        style_sheet=looks.sheet,
    )


def _pictures(definition: Definition, found: Results, directory: Path, looks: inline.Looks) -> Iterator[Picture]:
    points = of_experiment(definition, found.world, is_reduced=found.is_reduced)
    for number, picture in enumerate(figures.pictures(definition, points, found.points, directory)):
        with style.applied():
            figure = style.new_figure()
            picture.draw(figure)
        drawn = inline.draw(figure, f"figure{number}-", looks)
        name = picture.name.replace("-", " ").capitalize()
        yield Picture(name, picture.title, picture.how_to_read, picture.lines, drawn.svg, drawn.axes)


def _outcome(definition: Definition, found: Results) -> Outcome:
    rows = comparison.rows(found.points)
    errors = [(abs(error), row) for row in rows if (error := _model_error(row)) is not None]
    verdict = _claimed(found) if found.claims else _verdict(errors)
    caveats = f"{_verdict(errors)} {definition.about}" if found.claims else definition.about
    return Outcome(verdict, caveats, tuple(_facts(found, rows, errors)))


def _claimed(found: Results) -> str:
    """How many of the tested claims are reproduced, and which are not."""
    judged = [each for each in found.claims if each.verdict != claims.NOT_RUN]
    others = [each for each in judged if each.verdict != claims.REPRODUCED]
    rest = ", ".join(f"{each.name} ({each.verdict})" for each in others)
    text = f"{len(judged) - len(others)} of {len(judged)} claims of the study are reproduced"
    text += f"; others: {rest}" if rest else ""
    not_run = ", ".join(each.name for each in found.claims if each.verdict == claims.NOT_RUN)
    return f"{text}{f'; not run: {not_run}' if not_run else ''}."


def _model_error(row: Row) -> float | None:
    measured, model = row.means.get("throughput"), row.model.get("throughput")
    return model / measured - 1 if measured and model else None


def _verdict(errors: list[tuple[float, Row]]) -> str:
    if not errors:
        return "No point can be compared with the model."
    worst, row = max(errors, key=lambda each: each[0])
    half, most = np.percentile([error for error, _ in errors], (50, 90))
    return (
        f"Error of the model over {len(errors)} measured throughputs: median {_percent(half)}, 90th percentile "
        f"{_percent(most)}, largest {_percent(worst)} ({_place(row)})."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _place(row: Row) -> str:
    return ", ".join((row.arm, *(f"{name.rpartition('.')[2]} {text}" for name, text in row.grid.items())))


def _facts(found: Results, rows: list[Row], errors: list[tuple[float, Row]]) -> Iterator[Fact]:
    failed = f"{len(found.failed)} failed" if found.failed else "none failed"
    run = f"{len(found.points)} of {found.point_count}"
    yield Fact("points", run if not found.is_complete else str(found.point_count), failed)
    rates = [row.means["throughput"] for row in rows if "throughput" in row.means]
    if rates:
        yield Fact("throughput", f"{min(rates):.1f} to {max(rates):.1f} MB/s", "after the warm-up")
    if errors:
        yield Fact(
            "error of the model", _percent(float(np.mean([error for error, _ in errors]))), "mean of absolute errors"
        )
    idle = [row.means["idle_fraction"] for row in rows if "idle_fraction" in row.means]
    if idle:
        yield Fact("idle fraction", f"{min(idle):.0f} to {max(idle):.0f} %", "of the line")
    limiters = [row.limiter for row in rows if row.limiter]
    if limiters:
        named = sorted(set(limiters), key=lambda name: (-limiters.count(name), name))[:_SHOWN_LIMITERS]
        yield Fact(
            "limited by",
            ", ".join(f"{name.replace('_', ' ')} {limiters.count(name)}" for name in named),
            "places of the grid",
        )
    ratios = [each.ours / each.published for each in found.beside if each.ours is not None and each.published]
    if ratios:
        yield Fact("measured / published", f"{np.median(ratios):.2f}", f"median of {len(ratios)} values")


def _making(definition: Definition, found: Results) -> Iterator[str]:
    yield (
        f"Made by iscsitrace {iscsitrace.__version__}: `iscsitrace lab run {definition.name} --world {found.world}"
        f"{' --reduced' if found.is_reduced else ''}`. The definition is in the folder: "
        f"{definition.name}{catalogue.ENDING}."
    )
    if found.world != "simulated":
        is_guests = found.world == GUESTS
        note = (definition.guests if is_guests else definition.real).note
        where = "The initiator and target of Debian's kernel in virtual machines" if is_guests else _NAMESPACES
        yield f"{where}{': ' if note else ''}{note}."
    else:
        yield "Virtual time: the same definition makes the same captures, byte for byte."
    yield (
        "Throughput is counted by the initiator, after the warm-up. Idle fraction, k and limiter come from the capture "
        "at the initiator. Each number is defined in docs/method.md of the project."
    )
