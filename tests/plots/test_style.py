"""What all pictures have in common."""

from __future__ import annotations

from matplotlib.lines import Line2D

from iscsitrace.plots import style


def test_a_picture_grows_with_its_legend() -> None:
    """The marks keep their room, however many lines the legend has: without it the axes collapse."""
    for lines, most_in in ((2, 2.0), (20, 6.0)):
        with style.applied():
            figure = style.new_figure(2.0, 3.7)
            axes = figure.subplots()
            labels = [f"a kind of event, number {number}" for number in range(lines)]
            handles = [Line2D([], []) for _ in labels]
            style.fitted_legend(axes, list(handles), labels, 7, loc="lower left", bbox_to_anchor=(0.0, 1.0))
            style.make_room_for_legend(figure)
            figure.draw_without_rendering()
        assert axes.get_window_extent().height / figure.dpi > 0.7
        assert figure.get_figheight() <= most_in
