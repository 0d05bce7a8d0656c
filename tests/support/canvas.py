"""What is wrong with the text of a figure: cut by the edge of the canvas, on other text, or covering the data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

EDGE_PX = 1.0
"""How far text may reach beyond the canvas: its box has some air."""
TOUCH_PX = 2.0
"""How far two texts may overlap, likewise."""
COVERED_MOST = 0.25
"""Most of the area of axes that a legend inside of them may cover."""

Place = tuple[str, Bbox]


def problems(figure: Figure) -> list[str]:
    """Every fault, as a sentence."""
    figure.draw_without_rendering()
    every = list(texts(figure))
    return [*_cut(figure, every), *_overlaps(every), *_covered(figure)]


def every_axes(figure: Figure) -> list[Axes]:
    """All axes, and the strips inside or below them."""
    return [*figure.axes, *(each for axes in figure.axes for each in axes.child_axes if isinstance(each, Axes))]


def texts(figure: Figure) -> Iterator[Place]:
    """What is written outside of the data, with its box: title, footer, legends, titles and labels of axes, ticks."""
    for text in figure.texts:
        yield from _box("text", text)
    for axes in every_axes(figure):
        if not axes.get_visible():
            continue
        for title in (axes.title, axes._left_title, axes._right_title):  # type: ignore[attr-defined]
            yield from _box("title", title)
        for axis in (axes.xaxis, axes.yaxis):
            yield from _box("label", axis.label)
            yield from _ticks(axis)
        for text in axes.texts:
            yield from _box("mark", text)
        if (legend := axes.get_legend()) is not None:
            for text in legend.get_texts():
                yield from _box("legend", text)


def _ticks(axis: Axis) -> Iterator[Place]:
    """The labels of the ticks that are drawn: those beyond the limits are not."""
    low, high = sorted(axis.get_view_interval())
    for tick in axis.get_major_ticks():
        for label in (tick.label1, tick.label2):
            if low <= tick.get_loc() <= high and tick.get_visible():
                yield from _box("tick", label)


def _box(kind: str, text: Text) -> Iterator[Place]:
    if text.get_visible() and text.get_text().strip():
        box = text.get_window_extent()
        clip = text.get_clip_box()
        if clip is not None and text.get_clip_on() and not box.overlaps(clip):
            return
        yield f"{kind} {text.get_text()!r}", box


def _cut(figure: Figure, every: list[Place]) -> Iterator[str]:
    canvas = figure.bbox
    for name, box in every:
        over = max(canvas.x0 - box.x0, box.x1 - canvas.x1, canvas.y0 - box.y0, box.y1 - canvas.y1)
        if over > EDGE_PX:
            yield f"{name} reaches {over:.0f} px beyond the canvas"


def _overlaps(every: list[Place]) -> Iterator[str]:
    """Marks lie in the data, where text may stand on what it marks."""
    for (one, a), (other, b) in combinations([each for each in every if not each[0].startswith("mark")], 2):
        width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if min(width, height) > TOUCH_PX:
            yield f"{one} overlaps {other}"


def _covered(figure: Figure) -> Iterator[str]:
    for axes in every_axes(figure):
        if (legend := axes.get_legend()) is None:
            continue
        box, frame = legend.get_window_extent(), axes.bbox
        width, height = min(box.x1, frame.x1) - max(box.x0, frame.x0), min(box.y1, frame.y1) - max(box.y0, frame.y0)
        share = max(0.0, width) * max(0.0, height) / (frame.width * frame.height)
        if share > COVERED_MOST:
            yield f"a legend covers {share:.0%} of its axes"
