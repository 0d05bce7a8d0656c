"""The figures of an experiment, drawn from its results and from the captures that were kept for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import iscsitrace
from iscsitrace.plots import experiment, kinds, style, view
from iscsitrace.plots import ladder_columns as ladder_curves
from iscsitrace.plots.experiment import CourseLine, Look, draw_bars, draw_courses
from iscsitrace.plots.kinds import ladder
from iscsitrace.plots.marks import Detail
from iscsitrace.plots.picture import facts, subject_of_view, write_lines
from iscsitrace.show.files import written_aside
from iscsitrace.studies import charts, from_truth, repeats
from iscsitrace.studies.definition import (
    ARM,
    CAPTURED,
    AnyFigure,
    BudgetFigure,
    CourseFigure,
    Definition,
    FinishFigure,
    LineFigure,
    PacketFigure,
    StreamFigure,
)
from iscsitrace.studies.points import DesignPoint
from iscsitrace.studies.quantities import PointResult
from iscsitrace.studies.repeats import Row
from iscsitrace.studies.results import POINTS, FigureFile, write_text

FORMATS: Final = ("svg", "pdf")
"""The first is the one that results name."""
_READ_BUDGET: Final = "Each bar is the time from one call to the next, broken down by cause."
_READ_PACKETS: Final = (
    "Time runs downwards; packets cross from one host to the other. Shaded spans are idle at the tap; the column on "
    "the right shows the cause."
)
_READ_FINISHES: Final = "Streams are in the order in which they finished."
_READ_STREAMS: Final = "Left: progress of each stream over time. Right: its bytes in flight."
_LOOKS: Final[dict[str, Look]] = {from_truth.CONNECTIONS: "steps", from_truth.ALL_LATENCIES: "dots"}
_READ_COURSES: Final = "Time since the first command of the workload; a line is the first run at its place."


def needed(definition: Definition, points: Sequence[DesignPoint]) -> set[str]:
    """Names of the points whose captures a figure is drawn from."""
    return {point.name for figure in definition.figures if (point := _captured(figure, points)) is not None}


@dataclass(frozen=True)
class ResultFigure:
    """A figure for which there are results."""

    name: str
    title: str
    how_to_read: str
    draw: Callable[[Any], None]
    """Onto an empty figure of matplotlib's."""
    lines: tuple[str, ...]
    """The text below it."""
    rows: charts.Rows = ()
    """Its numbers; empty for a figure that is drawn from a capture."""


def pictures(
    definition: Definition, points: Sequence[DesignPoint], results: Sequence[PointResult], directory: Path
) -> Iterator[ResultFigure]:
    """The figures for which there are results, ready to be drawn."""
    rows = repeats.rows(results)
    for figure in definition.figures:
        found = _drawing(figure, definition, points, results, rows, directory)
        if found is not None:
            yield ResultFigure(figure.name, figure.title, *found)


def draw(
    definition: Definition, points: Sequence[DesignPoint], results: Sequence[PointResult], directory: Path
) -> list[FigureFile]:
    """Draws the figures for which there are results, and writes their numbers; the files.

    InputInvalid when one cannot be written.
    """
    files = []
    for picture in pictures(definition, points, results, directory):
        names = [f"{picture.name}.{ending}" for ending in FORMATS]
        with style.applied():
            drawn = style.new_figure()
            picture.draw(drawn)
            write_lines(drawn, picture.title, (picture.how_to_read, *picture.lines))
            for name in names:
                _save(directory / name, drawn)
        if picture.rows:
            names.append(f"{picture.name}.csv")
            write_text(directory / names[-1], charts.csv_text(picture.rows))
        files.append(FigureFile(picture.name, picture.title, names[0], tuple(names[1:])))
    return files


def _drawing(
    figure: AnyFigure,
    definition: Definition,
    points: Sequence[DesignPoint],
    results: Sequence[PointResult],
    rows: Sequence[Row],
    directory: Path,
) -> tuple[str, Callable[[Any], None], tuple[str, ...], charts.Rows] | None:
    """How to read a figure, how to draw it, the text below it, and its numbers; None without results for it."""
    match figure:
        case LineFigure() | FinishFigure():
            is_finish = isinstance(figure, FinishFigure)
            chart = (
                charts.of_finishes(figure, definition, results)
                if isinstance(figure, FinishFigure)
                else charts.of_lines(figure, definition, rows)
            )
            words = " ".join([charts.caption(chart), *([_READ_FINISHES] if is_finish else [])])
            drawing = (words, lambda drawn: experiment.draw(drawn, chart), chart.notes, charts.of_chart(chart))
            return drawing if chart.has("measured") else None
        case BudgetFigure():
            bars = charts.of_budgets(figure, definition, rows)
            drawn_bars = (_READ_BUDGET, lambda drawn: draw_bars(drawn, bars), bars.notes)
            return (*drawn_bars, charts.of_bars(bars)) if bars.panels else None
        case CourseFigure():
            lines = _course_lines(figure, points, results, lambda point: _point_name(figure, point))
            label = _course_label(figure, results)
            below = charts.source_lines(definition)
            drawn_courses = (_READ_COURSES, lambda drawn: draw_courses(drawn, lines, label), below)
            return (*drawn_courses, charts.of_courses(lines, label)) if lines else None
        case PacketFigure() | StreamFigure():
            capture = _capture(figure, points, results, directory)
            if capture is None:
                return None
            if isinstance(figure, StreamFigure):
                return _READ_STREAMS, *_streams(capture), ()
            made = _packets(capture, figure.cycles)
            return (_READ_PACKETS, *made, ()) if made else None


def _point_name(figure: CourseFigure, point: DesignPoint) -> str:
    if figure.lines == ARM or figure.lines not in point.place:
        return point.arm
    return f"{charts.setting_words(figure.lines)} {point.place[figure.lines].text}"


def _captured(figure: AnyFigure, points: Sequence[DesignPoint]) -> DesignPoint | None:
    """The point whose capture a figure is drawn from: its first point that has one."""
    if not isinstance(figure, CAPTURED):
        return None
    for point in points:
        is_shown = (not figure.arms or point.arm in figure.arms) and point.is_at(figure.where.settings)
        if is_shown and "initiator" in point.capture_at:
            return point
    return None


def _capture(
    figure: AnyFigure, points: Sequence[DesignPoint], results: Sequence[PointResult], directory: Path
) -> Path | None:
    """The capture at the initiator for a figure; None when it was not kept."""
    point = _captured(figure, points)
    result = next((each for each in results if point and each.name == point.name), None)
    if result is None or not result.captures:
        return None
    return directory / POINTS / result.name / result.captures[0]


def _save(path: Path, drawn: Any) -> None:
    with written_aside(path, has_hosts=False) as partial, partial.open("wb") as stream:
        style.write(drawn, stream, path.suffix.removeprefix("."))


def _course_lines(
    figure: CourseFigure,
    points: Sequence[DesignPoint],
    results: Sequence[PointResult],
    name_of: Callable[[DesignPoint], str],
) -> tuple[CourseLine, ...]:
    """The courses of the first run at each place of the figure, in the order of the points."""
    by_name = {result.name: result for result in results if result.error is None}
    found: dict[str, CourseLine] = {}
    for point in points:
        result = by_name.get(point.name)
        if result is None or not point.is_at(figure.where.settings) or (figure.arms and point.arm not in figure.arms):
            continue
        for each in result.courses:
            if each.name not in figure.courses:
                continue
            name = name_of(point) if len(figure.courses) == 1 else f"{name_of(point)}: {each.name}"
            look = _LOOKS.get(each.name, "line")
            found.setdefault(name, CourseLine(name, each.times_s, each.values, look))
    return tuple(found.values())


def _course_label(figure: CourseFigure, results: Sequence[PointResult]) -> str:
    """The name and unit of the course; for several courses, what their names share."""
    units = {each.unit for result in results for each in result.courses if each.name in figure.courses}
    first = figure.courses[0].partition(" of ")[0]
    unit = ", ".join(sorted(filter(None, units)))
    return f"{first}, {unit}" if unit else first


Drawing = tuple[Callable[[Any], None], tuple[str, ...]]
"""How to draw the figure, and the text below it."""
_LADDER_TABLES: Final = ("segments", "pdus", "budget")


def _packets(capture: Path, count: int) -> Drawing | None:
    """The packets of the last commands but one, which are in steady state; None when there are too few."""
    trace = iscsitrace.read(capture, tables=_LADDER_TABLES)
    commands = [row["cycle"] for row in trace.cycles.rows() if row["operation"] in {"read", "write"}]
    if len(commands) <= count:
        return None
    last = commands[-1]
    zoom = view.Zoom(cycles=range(last - count, last))
    origin_ns = trace.inputs[0]["time_first_ns"]
    seen = view.of_connection(trace.connections, trace.cycles, zoom, origin_ns)
    found = ladder_curves.compute(trace.connections, trace.cycles, trace.segments, trace.pdus, trace.budget, seen)
    about = subject_of_view([str(capture)], trace.connections, trace.coverage, seen)
    lines = (*(f"Note: {note}" for note in ladder.notes(found)), *facts(about))
    return lambda drawn: ladder.draw(drawn, found), lines


def _streams(capture: Path) -> Drawing:
    """The streams, as `plot streams` draws them."""
    kind = kinds.load("streams")
    trace = iscsitrace.read(capture, tables=kind.tables)
    drawing = kind.drawing(trace, view.Zoom(), trace.inputs[0]["time_first_ns"], Detail())
    about = subject_of_view([str(capture)], trace.connections, trace.coverage, drawing.view)
    return drawing.draw, (*(f"Note: {note}" for note in drawing.notes), *facts(about))
