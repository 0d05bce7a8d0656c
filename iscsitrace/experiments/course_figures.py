"""The lines of a figure over the time of runs: which points, which of their courses, and their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iscsitrace.experiments import course
from iscsitrace.experiments.definition_figures import CourseFigure
from iscsitrace.experiments.points import Point
from iscsitrace.experiments.quantities import PointResult
from iscsitrace.plots.courses import CourseLine


def lines_of(
    figure: CourseFigure, points: Sequence[Point], results: Sequence[PointResult], name_of: Callable[[Point], str]
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
            is_stepped = each.name == course.CONNECTIONS
            found.setdefault(name, CourseLine(name, each.times_s, each.values, is_stepped))
    return tuple(found.values())


def y_label(figure: CourseFigure, results: Sequence[PointResult]) -> str:
    """The name and unit of the course; for several courses, what their names share."""
    units = {each.unit for result in results for each in result.courses if each.name in figure.courses}
    first = figure.courses[0].partition(" of ")[0]
    unit = ", ".join(sorted(filter(None, units)))
    return f"{first}, {unit}" if unit else first
