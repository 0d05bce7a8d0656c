"""The legends of every kind of plot of captures: each colour that can be seen, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import iscsitrace
from iscsitrace.plots import kinds, style
from iscsitrace.plots.decimation import Detail
from iscsitrace.plots.view import Zoom
from iscsitrace.tables.trace import Trace

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NAMES = (
    "loss-1-percent",
    "mid-session",
    "sequential-read-4ms",
    "task-abort-storage-hang",
    "two-connections-one-session",
    "write-r2t-rounds",
)
NAMED_IN_PLACE = {
    # the number in use and the throughput have axes of their own
    "connections": {style.BLACK},
    # a lane: its session is named beside it
    "events": {style.PALE},
    # the uprights of hosts and tap have their names on top, the heat map has a scale
    "ladder": {style.BLACK},
    # the strip of commands without a status
    "latency": {style.PALE},
}


OF_TAPS = "loss-1-percent"
"""The sample with both ends."""
DRAWN = [
    (kind, name) for kind, name in product(kinds.NAMES, NAMES) if name == OF_TAPS or not kinds.load(kind).is_of_taps
]


@cache
def both_ends() -> Trace:
    folder = SAMPLES / OF_TAPS
    return iscsitrace.read_taps({"host": folder / "capture.pcap.gz", "disk": folder / "target.pcap.gz"})


@cache
def trace(name: str) -> Trace:
    every = [kinds.load(kind) for kind in kinds.NAMES]
    tables = tuple(dict.fromkeys(table for kind in every for table in (*kind.tables, *kind.zoomed_tables)))
    (capture,) = (SAMPLES / name).glob("capture.*")
    return iscsitrace.read(capture, tables=tables)


def drawn(kind: str, name: str) -> Figure:
    read = both_ends() if kinds.load(kind).is_of_taps else trace(name)
    drawing = kinds.load(kind).drawing(read, Zoom(), read.inputs[0]["time_first_ns"], Detail())
    with style.applied():
        figure = style.new_figure()
        drawing.draw(figure)
        figure.draw_without_rendering()
    return figure


def colors_of(artist: Any) -> Iterator[str]:
    """The colours of lines, marks and areas, without their transparency; white separates, and does not count."""
    if isinstance(artist, Line2D):
        found: list[Any] = [] if artist.get_linestyle() in ("None", "none", "") else [artist.get_color()]
        if artist.get_marker() not in ("None", "none", "", None):
            found.append(artist.get_markeredgecolor() if artist.get_marker() in ("_", "x", "+") else artist.get_color())
    elif isinstance(artist, Collection):
        found = [*artist.get_facecolor(), *artist.get_edgecolor()]
    else:
        assert isinstance(artist, Patch)
        face: Any = artist.get_facecolor()
        found = [face] if face[3] else [artist.get_edgecolor()]
    for color in found:
        if (text := to_hex(color)) != "#ffffff":
            yield text.lower()


def is_seen(artist: Any, axes: Axes) -> bool:
    if isinstance(artist, Line2D):
        if artist.get_transform() != axes.transData:
            return True
        x, y = (np.asarray(each, dtype=float) for each in artist.get_data())
        (left, right), (low, high) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
        return bool(len(x) and np.nanmin(x) <= right and np.nanmax(x) >= left and np.nanmin(y) <= high
                    and np.nanmax(y) >= low)  # fmt: skip
    if isinstance(artist, Patch):
        extents = artist.get_window_extent()
        return bool(extents.width > 0 and extents.height > 0 and extents.overlaps(axes.bbox))
    return bool(artist.get_datalim(axes.transData).transformed(axes.transData).overlaps(axes.bbox))


def axes_of(figure: Figure) -> list[Axes]:
    """All axes, and the strips of events below them."""
    return [*figure.axes, *(each for axes in figure.axes for each in axes.child_axes if isinstance(each, Axes))]


def seen_colors(figure: Figure) -> set[str]:
    found: set[str] = set()
    for axes in axes_of(figure):
        marks = [*axes.lines, *axes.patches, *(each for each in axes.collections if not isinstance(each, QuadMesh))]
        for artist in marks:
            if artist.get_visible() and is_seen(artist, axes):
                found.update(colors_of(artist))
    return found


def legend_colors(figure: Figure) -> set[str]:
    made = [legend for axes in axes_of(figure) if (legend := axes.get_legend()) is not None]
    return {color for legend in made for handle in legend.legend_handles for color in colors_of(handle)}


@pytest.mark.parametrize(("kind", "name"), DRAWN)
def test_legends_have_the_colors_that_are_drawn(kind: str, name: str) -> None:
    figure = drawn(kind, name)
    in_place = {color.lower() for color in NAMED_IN_PLACE.get(kind, set())}
    assert seen_colors(figure) - in_place <= legend_colors(figure)
    # percentiles of any operation are explained in black, and so are the shapes of events
    has_shapes = kind in ("latency", "events") or len(axes_of(figure)) > len(figure.axes)
    neutral = {style.BLACK.lower()} if has_shapes else set()
    assert legend_colors(figure) - neutral <= seen_colors(figure)


def test_a_color_that_is_missing_is_found() -> None:
    """The check itself: a line without a label, and a label of something outside of the axes."""
    with style.applied():
        figure = style.new_figure()
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=style.BLUE)
        axes.plot([0, 1], [8, 9], color=style.GREEN, label="outside")
        axes.set_ylim(0, 2)
        axes.legend()
    assert (seen_colors(figure), legend_colors(figure)) == ({style.BLUE.lower()}, {style.GREEN.lower()})
    axes.plot([0, 1], [1, 9], color=style.ORANGE, label="in part")
    style.legend(axes)
    made = axes.get_legend()
    assert made is not None
    assert [text.get_text() for text in made.get_texts()] == ["in part"]
