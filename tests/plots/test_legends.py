"""The check of legends itself; test_canvas.py applies it to every kind of plot."""

from __future__ import annotations

from iscsitrace.plots import style
from tests.support.legends import legend_colors, seen_colors, wrong_colors


def test_a_color_that_is_missing_is_found() -> None:
    """A line without a label, and a label of something outside of the axes."""
    with style.applied():
        figure = style.new_figure()
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=style.BLUE)
        axes.plot([0, 1], [8, 9], color=style.GREEN, label="outside")
        axes.set_ylim(0, 2)
        axes.legend()
    assert (seen_colors(figure), legend_colors(figure)) == ({style.BLUE.lower()}, {style.GREEN.lower()})
    assert wrong_colors("window", figure) == [
        f"{style.BLUE.lower()} is drawn and in no legend",
        f"{style.GREEN.lower()} is in a legend and not drawn",
    ]
    axes.plot([0, 1], [1, 9], color=style.ORANGE, label="in part")
    style.legend(axes)
    made = axes.get_legend()
    assert made is not None
    assert [text.get_text() for text in made.get_texts()] == ["in part"]
