"""The colours of a plot of captures: its legends have each that can be seen, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from iscsitrace.plots import style
from tests.support.canvas import every_axes

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


def wrong_colors(kind: str, figure: Figure) -> list[str]:
    """What its legends lack or have too much; the figure was drawn."""
    in_place = {color.lower() for color in NAMED_IN_PLACE.get(kind, set())}
    # percentiles of any operation are explained in black, and so are the shapes of events
    has_shapes = kind in ("latency", "events") or len(every_axes(figure)) > len(figure.axes)
    neutral = {style.BLACK.lower()} if has_shapes else set()
    seen, explained = seen_colors(figure), legend_colors(figure)
    return [
        *(f"{color} is drawn and in no legend" for color in sorted(seen - in_place - explained)),
        *(f"{color} is in a legend and not drawn" for color in sorted(explained - neutral - seen)),
    ]


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


def seen_colors(figure: Figure) -> set[str]:
    found: set[str] = set()
    for axes in every_axes(figure):
        marks = [*axes.lines, *axes.patches, *(each for each in axes.collections if not isinstance(each, QuadMesh))]
        for artist in marks:
            if artist.get_visible() and is_seen(artist, axes):
                found.update(colors_of(artist))
    return found


def legend_colors(figure: Figure) -> set[str]:
    made = [legend for axes in every_axes(figure) if (legend := axes.get_legend()) is not None]
    return {color for legend in made for handle in legend.legend_handles for color in colors_of(handle)}
