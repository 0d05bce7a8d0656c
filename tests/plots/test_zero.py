"""Axes that begin at 0 have room above the mark of the largest value."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from iscsitrace.plots import experiment
from iscsitrace.plots.experiment import CourseLine, draw_courses

PLACES = (0.0, 50.0, 100.0)


@pytest.mark.parametrize("values", [(5.98, 5.8, 5.65), (5.9, 5.9, 5.9), (0.0, 3.0, 6.0), (0.0, 0.0, 0.0)])
def test_the_largest_value_is_below_the_end_of_the_axis(values: tuple[float, ...]) -> None:
    """Values that differ little would leave room for a twentieth of their difference, less than half of a mark."""
    nothing = (None,) * len(PLACES)
    line = experiment.Graph("one", PLACES, values, nothing, (1,) * len(PLACES), nothing, nothing, nothing)
    chart = experiment.Chart("a title", "x", "y", tuple((place, f"{place:g}") for place in PLACES), (line,))
    figures = Figure(), Figure()
    experiment.draw(figures[0], chart)
    draw_courses(figures[1], (CourseLine("one", PLACES, values),), "y")
    for figure in figures:
        (axes,) = figure.axes
        low, high = axes.get_ylim()
        assert low == 0
        assert high >= 1.02 * max(values)
        assert axes.get_xlim()[0] < PLACES[0] < PLACES[-1] < axes.get_xlim()[1]
