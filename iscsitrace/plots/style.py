"""The style of every plot: colours, marks, sizes, and metadata without dates, so that equal arrays give equal bytes;
and one unit for the nanoseconds or bytes of an axis, named in its label.

The colours are Okabe and Ito's palette, safe for colour-blind readers; each colour also has its own mark, hatch or
line style.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import get_registered_canvas_class
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection, LineCollection
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from iscsitrace.plots.view import View

Array = NDArray[Any]


_SECOND_NS = 1_000_000_000
_TIME_UNITS = (("s", _SECOND_NS), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_BYTE_UNITS = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3), ("bytes", 1))


TIME = "time"
"""The label of axes whose horizontal axis is time."""


class TimeAxis:
    """The time axis of a view: seconds after the first packet, or for a short view the time after a round value."""

    def __init__(self, view: View) -> None:
        length_ns = max(1, view.end_ns - view.start_ns)
        if length_ns >= 2 * _SECOND_NS:
            self.base_ns, self.unit, self._per_unit = view.origin_ns, "s", _SECOND_NS
            self.label = "seconds after the first packet"
        else:
            # ticks count from a round value, so that they stay short
            self.unit, self._per_unit = next(
                ((unit, size) for unit, size in _TIME_UNITS[1:] if length_ns >= 2 * size), _TIME_UNITS[-1]
            )
            after_ns = (view.start_ns - view.origin_ns) // self._per_unit * self._per_unit
            self.base_ns = view.origin_ns + after_ns
            moment = f"{after_ns / _SECOND_NS:.9g} s" if after_ns else "the first packet"
            self.label = f"{self.unit} after {moment}"
        self._view = view

    def of(self, times_ns: Array) -> Array:
        """Times on this axis."""
        return np.asarray(times_ns - self.base_ns, dtype=np.float64) / self._per_unit

    def at(self, time_ns: int) -> float:
        """One time on this axis."""
        return (time_ns - self.base_ns) / self._per_unit

    def apply(self, axes: Axes, *, has_label: bool = True) -> None:
        """Sets limits and label."""
        axes.set_xlim(self.at(self._view.start_ns), self.at(self._view.end_ns))
        axes.set_xlabel(self.label if has_label else "")
        if has_label:
            axes.set_label(TIME)


class ByteAxis:
    """An axis of bytes, in the largest decimal unit with values above one."""

    def __init__(self, greatest: float) -> None:
        self.unit, self._per_unit = next(((u, s) for u, s in _BYTE_UNITS if greatest >= s), _BYTE_UNITS[-1])

    def of(self, amounts: Array) -> Array:
        """Amounts on this axis."""
        return np.asarray(amounts, dtype=np.float64) / self._per_unit

    def at(self, amount: float) -> float:
        """One amount on this axis."""
        return amount / self._per_unit


class DurationAxis:
    """An axis of durations, in a unit that suits the longest."""

    def __init__(self, greatest_ns: float) -> None:
        self.unit, self._per_unit = next(((u, s) for u, s in _TIME_UNITS if greatest_ns >= 2 * s), _TIME_UNITS[-1])

    def of(self, durations_ns: Array) -> Array:
        """Durations on this axis."""
        return np.asarray(durations_ns, dtype=np.float64) / self._per_unit

    def at(self, duration_ns: float) -> float:
        """One duration on this axis."""
        return duration_ns / self._per_unit


def duration(length_ns: float) -> str:
    """A duration with three significant digits and its unit."""
    rounded_ns = float(f"{length_ns:.3g}")
    unit, per_unit = next(((unit, size) for unit, size in _TIME_UNITS if rounded_ns >= size), _TIME_UNITS[-1])
    amount = rounded_ns / per_unit
    return f"{amount:,.0f} {unit}" if amount >= 1000 else f"{amount:.3g} {unit}"


def step_note(edges_ns: Array) -> str:
    """What a step of a plot over time shows; see iscsitrace.plots.steps."""
    length_ns = (edges_ns[-1] - edges_ns[0]) / (len(edges_ns) - 1)
    return f"each step is {duration(length_ns)}; bursts and waits within commands of less than ten steps are averaged"


BLACK, GREY, PALE = "#000000", "#7a7a7a", "#e9e9e9"
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"

WIDTH_IN, HEIGHT_IN, DPI = 11.0, 6.2, 110
SEEN_SHARE = 1 / 400
"""Smallest height of an area, as a share of the greatest, that can be seen: about a pixel."""
_STYLE: dict[str, Any] = {
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": True,
    "legend.framealpha": 0.9,
    "legend.edgecolor": "#cccccc",
    "lines.linewidth": 1.1,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "hatch.linewidth": 0.6,
    "axes.formatter.useoffset": False,
    # ids in an SVG must not be random
    "svg.hashsalt": "iscsitrace",
    "pdf.fonttype": 42,
    "path.simplify": True,
}
_LABELS_IN = 0.8
"""Room for the ticks and the label of a y axis,"""
_GAP_PX = 30
"""or beside labels that are known, such as names;"""
_SCALE_IN = 0.4
"""and room that another column may take for its scale of colours."""
_LEGEND_IN = 0.4
"""Height that a picture has for its legend."""
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": "iscsitrace"},
    "svg": {"Date": None, "Creator": "iscsitrace"},
    "pdf": {"CreationDate": None, "Creator": "iscsitrace", "Producer": None},
}

OPERATION_MARKS = {"read": (BLUE, "o"), "write": (ORANGE, "s")}
OTHER_MARK = (GREY, "^")
RETRANSMISSION_MARKS = {
    "fast": ("v", "fast retransmit"),
    "timeout": ("X", "timeout"),
    "tail_probe": ("D", "tail loss probe"),
    "unknown": ("d", "retransmission, cause unknown"),
}
"""Marker and label by cause."""


@contextmanager
def applied() -> Iterator[None]:
    """Applies this style, regardless of any matplotlibrc."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(cast(Any, _STYLE))
        yield


def new_figure(height_in: float = HEIGHT_IN, width_in: float = WIDTH_IN) -> Figure:
    """A figure without a window."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    # texts are measured with its renderer; without one, each of them makes its own
    FigureCanvasAgg(figure)
    return figure


def write(figure: Figure, stream: IO[bytes], file_format: str, dots_per_inch: float | None = None) -> None:
    """Writes the plot as ``png``, ``svg`` or ``pdf``; a PNG by default with DPI pixels per inch."""
    with applied():
        draw_into(stream, figure, file_format, _METADATA[file_format], dots_per_inch or DPI)


def draw_into(
    stream: IO[bytes], figure: Figure, file_format: str, metadata: Mapping[str, Any], dots_per_inch: float = DPI
) -> None:
    """Draws the figure once: ``savefig`` does so a second time, for a layout that drawing computes anyway."""
    figure.set_dpi(dots_per_inch)
    canvas: Any = get_registered_canvas_class(file_format)(figure)
    getattr(canvas, f"print_{file_format}")(stream, metadata=metadata)


def operation_mark(operation: str) -> tuple[str, str]:
    """Colour and marker of a SCSI operation."""
    return OPERATION_MARKS.get(operation, OTHER_MARK)


def legend(top: Axes, *sources: Axes, columns: int = 5, lift: float = 0.0) -> None:
    """Adds a legend above ``top``, outside the data, of what is seen and has a label in ``sources``; each label once.

    Limits must be set: what is beyond them is not seen.

    ``lift`` is its distance from ``top`` as a share of the height.
    """
    found: dict[str, Any] = {}
    for axes in sources or (top,):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if _is_seen(handle, axes):
                found.setdefault(label, handle)
    if not found:
        return
    made = fitted_legend(
        top, list(found.values()), list(found), columns, loc="lower left", bbox_to_anchor=(0.0, 1.0 + lift),
        borderaxespad=0.3, columnspacing=1.2, handlelength=1.8,
    )  # fmt: skip
    # thin lines and points are hard to see in the legend
    for handle in filter(None, made.legend_handles):
        if isinstance(handle, Line2D | LineCollection):
            handle.set_linewidth(max(1.6, float(np.max(handle.get_linewidth()))))
        if isinstance(handle, Line2D):
            handle.set_markersize(max(7.0, handle.get_markersize()))


def fitted_legend(
    axes: Axes,
    handles: list[Any],
    labels: list[str],
    columns: int,
    *,
    beside: Axes | None = None,
    is_across: bool = False,
    **look: Any,
) -> Legend:
    """A legend without a frame, of at most ``columns``: fewer where they have no room in the width of ``beside``, by
    default of the axes themselves. ``is_across``: it may reach across the picture.
    """
    room_px = _room_px(beside or axes, is_across=is_across)
    for count in range(max(1, min(columns, len(labels))), 0, -1):
        made = axes.legend(handles, labels, ncols=count, frameon=False, **look)
        if made.get_window_extent().width <= room_px:
            break
    return made


def make_room_for_legend(figure: Figure) -> None:
    """Makes the picture higher by what its legend needs beside a few lines: on a narrow one it has many."""
    legend = figure.axes[0].get_legend()
    if legend is not None:
        legend_in = legend.get_window_extent().height / figure.dpi
        figure.set_figheight(figure.get_figheight() + max(0.0, legend_in - _LEGEND_IN))


def _room_px(axes: Axes, *, is_across: bool) -> float:
    """The width of the picture that the axes have, but for the labels beside them, as far as these are known."""
    place, share = axes.get_subplotspec(), 1.0
    if place is not None and not is_across:
        grid = place.get_gridspec()
        ratios = np.asarray(grid.get_width_ratios(), dtype=np.float64)
        share = float(ratios[place.colspan.start : place.colspan.stop].sum() / ratios.sum())
    figure = axes.get_figure(root=True)
    if figure is None:
        return math.inf
    labels_px = max((each.get_window_extent().width for each in axes.get_yticklabels()), default=0.0)
    beside_px = max(_LABELS_IN * figure.dpi, labels_px + _GAP_PX) + (_SCALE_IN * figure.dpi if share < 1 else 0.0)
    return float(share * figure.get_figwidth() * figure.dpi - beside_px)


def _is_seen(handle: Any, axes: Axes) -> bool:
    """Whether a part of it is within the axes; a proxy without data is."""
    if isinstance(handle, Line2D) and not np.size(handle.get_xdata()):
        return True
    parts = handle if isinstance(handle, Container) else (handle,)
    extents = (
        each.get_datalim(axes.transData).transformed(axes.transData)
        if isinstance(each, Collection)
        else each.get_window_extent()
        for each in parts
    )
    frame = axes.bbox
    return any(
        each.xmin <= frame.xmax
        and each.xmax >= frame.xmin
        # an axis may be inverted
        and each.ymin <= frame.ymax
        and each.ymax >= frame.ymin
        for each in extents
    )


def stack(axes: Axes, below: Array, height: Array, edges: Array, color: str, hatch: str, label: str) -> Array:
    """Draws steps of an area upon others; returns the upper edge."""
    axes.stairs(
        below + height, edges, baseline=below, fill=True, color=color, hatch=hatch, edgecolor="white", linewidth=0,
        label=label,
    )  # fmt: skip
    return below + height


def show_durations(axes: Axes) -> None:
    """Labels the y axis with durations."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value) if value else "0"))


def from_zero(axes: Axes) -> None:
    """Lets the y axis begin at 0, with room for the mark of the largest value, however little the values differ."""
    axes.update_datalim([(axes.dataLim.x0, 0.0)], updatex=False)
    axes.autoscale_view(scalex=False)
    axes.set_ylim(bottom=0)


def write_text(axes: Axes, text: str) -> None:
    """Writes a line inside the axes, to state what is missing."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY, parse_math=False)
