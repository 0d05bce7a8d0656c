"""The figure of a quantity: marks that coincide stay visible, and each kind of published value has its own."""

from __future__ import annotations

from typing import Any

import matplotlib.colors
import pytest
from matplotlib.axes import Axes

from iscsitrace.plots import experiment, style
from iscsitrace.plots.experiment import Chart, Graph

PLACES = (0.0, 1.0, 2.0)
NOTHING = (None, None, None)


def line(name: str, measured: tuple[float | None, ...], **more: tuple[float | None, ...]) -> Graph:
    rest: dict[str, Any] = {"model": NOTHING, "printed": NOTHING, "computed": NOTHING} | more
    return Graph(name, PLACES, measured, NOTHING, (1, 1, 1), **rest)


def drawn(*lines: Graph, **more: Any) -> Axes:
    with style.applied():
        figure = style.new_figure()
        experiment.draw(figure, Chart("a title", "x", "y", ((0.0, "0"), (1.0, "1"), (2.0, "2")), lines, **more))
    (axes,) = figure.axes
    return axes


def marks(axes: Axes, mark: str) -> list[Any]:
    return [each for each in axes.lines if each.get_marker() == mark]


def is_hollow(mark: Any) -> bool:
    return bool(matplotlib.colors.to_rgba(mark.get_markerfacecolor())[3] == 0)


@pytest.mark.parametrize(
    ("later", "is_ring"),
    [
        ((10.0, 20.0, 30.0), True),
        # within a hundredth of the largest value
        ((10.2, 19.8, 30.0), True),
        # one place of three
        ((10.0, 12.0, 14.0), False),
        ((10.4, 20.4, 30.4), False),
        ((None, None, None), False),
    ],
)
def test_a_line_that_a_later_one_covers_has_rings(later: tuple[float | None, ...], is_ring: bool) -> None:
    axes = drawn(line("first", (10.0, 20.0, 30.0)), line("second", later))
    (first,) = marks(axes, "o")
    assert (is_hollow(first), first.get_markersize() > 6) == (is_ring, is_ring)
    for second in marks(axes, "s"):
        assert not is_hollow(second)
        assert second.get_markersize() == 6


def test_rings_of_three_lines_are_of_three_sizes() -> None:
    same = (10.0, 20.0, 30.0)
    axes = drawn(*(line(name, same) for name in "abc"))
    sizes = [marks(axes, mark)[0].get_markersize() for mark in "os^"]
    assert sizes[0] > sizes[1] > sizes[2]


def test_printed_values_are_stars_and_computed_ones_pentagons() -> None:
    axes = drawn(line("one", (1.0, 2.0, 3.0), printed=(None, 2.5, None), computed=(0.5, None, None)))
    (star,), (pentagon,) = marks(axes, "*"), marks(axes, "p")
    assert (list(star.get_xdata()), list(star.get_ydata())) == ([1.0], [2.5])
    assert (list(pentagon.get_xdata()), list(pentagon.get_ydata())) == ([0.0], [0.5])
    legend = axes.get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["one", "printed in the study", "computed from what the study prints"]


def test_stars_of_several_lines_at_one_value_are_all_seen() -> None:
    printed = (None, 2.5, None)
    axes = drawn(line("one", (1.0, 2.0, 3.0), printed=printed), line("two", (4.0, 5.0, 6.0), printed=printed))
    first, second = marks(axes, "*")
    assert first.get_markersize() > second.get_markersize()


def test_one_place_of_the_model_is_a_dash() -> None:
    alone = drawn(line("one", (1.0, None, None), model=(1.5, None, None)))
    assert [list(each.get_ydata()) for each in marks(alone, "_")] == [[1.5]]
    assert not marks(drawn(line("one", (1.0, 2.0, None), model=(1.5, 2.5, None))), "_")


def test_a_value_without_a_place_is_a_line_across_the_figure_in_the_color_of_its_marks() -> None:
    axes = drawn(line("one", (1.0, 2.0, 3.0)), line("two", (2.0, 3.0, 4.0), levels=(2.5,)))
    level: Any
    (level,) = [each for each in axes.lines if each.get_linestyle() == "--"]
    assert level.get_xydata().tolist() == [[0, 2.5], [1, 2.5]]  # along x: shares of the width
    (second,) = marks(axes, "s")
    assert level.get_color() == second.get_color()
    legend = axes.get_legend()
    assert legend is not None
    assert "printed in the study, without a place" in [each.get_text() for each in legend.get_texts()]
    assert not [each for each in drawn(line("one", (1.0, 2.0, 3.0))).lines if each.get_linestyle() == "--"]


def test_a_printed_range_is_a_band_across_the_figure() -> None:
    axes = drawn(line("one", (1.0, 2.0, 3.0)), printed_range=(1.5, 2.5))
    (band,) = axes.patches
    low, high = band.get_extents().transformed(axes.transData.inverted()).intervaly
    assert (low, high) == (pytest.approx(1.5), pytest.approx(2.5))
    assert not drawn(line("one", (1.0, 2.0, 3.0))).patches
