"""The figures of an experiment, drawn from its results and from the captures that were kept for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from iscsitrace.experiments import capture_figures, charts, comparison, course_figures
from iscsitrace.experiments.comparison import Row
from iscsitrace.experiments.definition import Definition
from iscsitrace.experiments.definition_figures import (
    ARM,
    CAPTURED,
    AnyFigure,
    BudgetFigure,
    CourseFigure,
    FinishFigure,
    LineFigure,
    PacketFigure,
    StreamFigure,
)
from iscsitrace.experiments.points import Point
from iscsitrace.experiments.quantities import PointResult
from iscsitrace.experiments.results import POINTS, FigureFile
from iscsitrace.outputs.files import written_aside
from iscsitrace.plots import budget_bars, courses, experiment, footer, style

FORMAT: Final = "svg"
_READ_LINES: Final = "Marks: measured. Lines: model. Stars: published."
_READ_BUDGET: Final = "Each bar is the time from one call to the next, broken down by cause."
_READ_PACKETS: Final = (
    "Time runs downwards; packets cross from one host to the other. Shaded spans are idle at the tap; the column on "
    "the right shows the cause."
)
_READ_FINISHES: Final = (
    "Marks: means over repeats; error bars: standard deviations. Streams are in the order in which they finished."
)
_READ_STREAMS: Final = (
    "Left: progress of each stream over time. Right: its bytes in flight; a loss halves them, a timeout drops them to "
    "zero."
)
_READ_COURSES: Final = "Time since the first command of the workload; a line is one run."


def needed(definition: Definition, points: Sequence[Point]) -> set[str]:
    """Names of the points whose captures a figure is drawn from."""
    return {point.name for figure in definition.figures if (point := _captured(figure, points)) is not None}


@dataclass(frozen=True)
class Picture:
    """A figure for which there are results."""

    name: str
    title: str
    how_to_read: str
    draw: Callable[[Any], None]
    """Onto an empty figure of matplotlib's."""
    lines: tuple[str, ...]
    """The text below it."""


def pictures(
    definition: Definition, points: Sequence[Point], results: Sequence[PointResult], directory: Path
) -> Iterator[Picture]:
    """The figures for which there are results, ready to be drawn."""
    rows = comparison.rows(results)
    for figure in definition.figures:
        found = _drawing(figure, definition, points, results, rows, directory)
        if found is not None:
            how_to_read, draw, lines = found
            yield Picture(figure.name, figure.title, how_to_read, draw, lines)


def draw(
    definition: Definition, points: Sequence[Point], results: Sequence[PointResult], directory: Path
) -> list[FigureFile]:
    """Draws the figures for which there are results; the files. InputInvalid when one cannot be written."""
    files = []
    for picture in pictures(definition, points, results, directory):
        path = directory / f"{picture.name}.{FORMAT}"
        with style.applied():
            drawn = style.new_figure()
            picture.draw(drawn)
            footer.write_lines(drawn, picture.title, picture.lines)
            _save(path, drawn)
        files.append(FigureFile(picture.name, picture.title, path.name))
    return files


def _drawing(
    figure: AnyFigure,
    definition: Definition,
    points: Sequence[Point],
    results: Sequence[PointResult],
    rows: Sequence[Row],
    directory: Path,
) -> tuple[str, Callable[[Any], None], tuple[str, ...]] | None:
    """How to read a figure, how to draw it, and the text below it; None without results for it."""
    match figure:
        case LineFigure():
            chart = charts.of_lines(figure, definition, rows)
            has_marks = any(value is not None for line in chart.lines for value in line.measured)
            return (_READ_LINES, lambda drawn: experiment.draw(drawn, chart), chart.notes) if has_marks else None
        case FinishFigure():
            chart = charts.of_finishes(figure, definition, results)
            return (_READ_FINISHES, lambda drawn: experiment.draw(drawn, chart), chart.notes) if chart.lines else None
        case BudgetFigure():
            bars = charts.of_budgets(figure, definition, rows)
            return (_READ_BUDGET, lambda drawn: budget_bars.draw(drawn, bars), bars.notes) if bars.panels else None
        case CourseFigure():
            lines = course_figures.lines_of(figure, points, results, lambda point: _point_name(figure, point))
            label = course_figures.y_label(figure, results)
            below = charts.source_lines(definition)
            return (_READ_COURSES, lambda drawn: courses.draw(drawn, lines, label), below) if lines else None
        case PacketFigure() | StreamFigure():
            capture = _capture(figure, points, results, directory)
            if capture is None:
                return None
            if isinstance(figure, StreamFigure):
                return _READ_STREAMS, *capture_figures.streams(capture)
            made = capture_figures.packets(capture, figure.cycles)
            return (_READ_PACKETS, *made) if made else None


def _point_name(figure: CourseFigure, point: Point) -> str:
    if figure.lines == ARM or figure.lines not in point.place:
        return point.arm
    return f"{charts.setting_words(figure.lines)} {point.place[figure.lines].text}"


def _captured(figure: AnyFigure, points: Sequence[Point]) -> Point | None:
    """The point whose capture a figure is drawn from: its first point that has one."""
    if not isinstance(figure, CAPTURED):
        return None
    for point in points:
        is_shown = (not figure.arms or point.arm in figure.arms) and point.is_at(figure.where.settings)
        if is_shown and "initiator" in point.capture_at:
            return point
    return None


def _capture(
    figure: AnyFigure, points: Sequence[Point], results: Sequence[PointResult], directory: Path
) -> Path | None:
    """The capture at the initiator for a figure; None when it was not kept."""
    point = _captured(figure, points)
    result = next((each for each in results if point and each.name == point.name), None)
    if result is None or not result.captures:
        return None
    return directory / POINTS / result.name / result.captures[0]


def _save(path: Path, drawn: Any) -> None:
    with written_aside(path) as partial, partial.open("wb") as stream:
        style.write(drawn, stream, FORMAT)
