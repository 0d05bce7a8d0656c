"""Latency over time, as a cumulative distribution, as a heat map and by I/O size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import outliers, waits
from iscsitrace.measure.by_subject import medians as medians_of
from iscsitrace.measure.waits import UNKNOWN, Waits
from iscsitrace.plots import style
from iscsitrace.plots.kind import (
    GROUP_TITLES,
    OPERATION,
    CommandGroups,
    Kind,
    by_operation,
    groups_of,
    whole_session,
    with_events,
)
from iscsitrace.plots.marks import Array, Detail, Series, even_edges, extremes
from iscsitrace.plots.style import TimeAxis, duration
from iscsitrace.plots.view import View, picked_cycles
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording.amounts import count
from iscsitrace.wording.cells import size

BINS_TIME, BINS_LATENCY = (10, 80), (10, 40)
"""Least and most bins of the heat map; more commands make more bins."""
CDF_POINTS = 1000
BLOCK_SIZES = 12
GROUPS = 5
"""Operations, LUNs or sessions that have a curve of their own."""
LABELS = 5
"""Outliers that are named."""


@dataclass(frozen=True)
class Outlier:
    """A command that took far longer than others like it."""

    cycle: int
    time_ns: int
    latency_ns: int


@dataclass(frozen=True)
class Latency:
    """Commands of the view by latency, and those without a status; all in nanoseconds."""

    view: View
    over_time: dict[str, Series]
    """By operation, the most frequent first, or by LUN or session, the slowest first: time of command, and latency."""
    is_decimated: bool
    distribution: dict[str, tuple[Array, Array]]
    """Likewise: sorted latencies, and the share of commands that took no longer: of those, too, that never did."""
    heat: Array
    """Number of commands, (latencies, times)."""
    time_edges_ns: Array
    latency_edges_ns: Array
    block_sizes: dict[str, dict[int, dict[str, int]]]
    """Likewise, and by size in bytes: ``n p50 p95 p99 max``, without those for which there are too few commands;
    ``open_count`` where commands without a status are among them.
    """
    task_count: int
    """Commands with a latency."""
    without_status: Series = field(default_factory=Series)
    """Commands without a status: when each was sent, and how long it waited."""
    unsure_count: int = 0
    """Commands with a status whose latency is unsure."""
    by: str = OPERATION
    """What the curves are told apart by."""
    untold_count: int = 0
    """Commands that have none of it: they move no data."""
    outliers: tuple[Outlier, ...] = ()
    """The slowest first."""


def compute(
    cycles: Table, waited: Waits, view: View, detail: Detail | None = None, told: CommandGroups | None = None
) -> Latency:
    """The latencies of a view; InputInvalid where it has none. ``waited`` are the waits of all cycles.

    ``told`` tells all cycles apart, by default by operation.
    """
    detail = detail or Detail()
    told = told or by_operation(cycles)
    starts = cycles.raw("command_first_ns")
    is_seen = picked_cycles(cycles, view) & view.covers(starts)
    is_in_view = is_seen & (told.places >= 0)
    in_view, waited, told = cycles.select(is_in_view), waited.select(is_in_view), told.select(is_in_view)
    is_known = ~waited.is_open & (waited.least_ns != UNKNOWN)
    known = in_view.select(is_known)
    if not len(known):
        raise InputInvalid("nothing to draw: no SCSI command of the view has a status")
    times, values = known.raw("command_first_ns"), waited.least_ns[is_known]
    edges = detail.edges(len(known), view.start_ns, view.end_ns)
    curves = _curves(told, waited)
    with_latency = {name: chosen[is_known] for name, chosen in curves.items() if (chosen & is_known).any()}
    latency_edges = _latency_edges(values, int(np.clip(len(known) // 6, *BINS_LATENCY)))
    time_edges = even_edges(view.start_ns, view.end_ns + 1, int(np.clip(len(known) // 3, *BINS_TIME)))
    after = times - view.start_ns, time_edges - view.start_ns
    heat, _, _ = np.histogram2d(values, after[0], bins=(latency_edges, after[1]))
    return Latency(
        view=view,
        over_time={name: _points(times[chosen], values[chosen], edges) for name, chosen in with_latency.items()},
        is_decimated=edges is not None,
        distribution=_distributions(curves, waited),
        heat=heat.astype(np.int64),
        time_edges_ns=time_edges,
        latency_edges_ns=latency_edges,
        block_sizes=_block_sizes(in_view, curves, waited),
        task_count=len(known),
        without_status=_without_status(in_view, waited),
        unsure_count=int((waited.least_ns == UNKNOWN).sum()),
        by=told.by,
        untold_count=int(is_seen.sum() - is_in_view.sum()),
        outliers=_outliers(known, values),
    )


def _outliers(cycles: Table, latencies_ns: Array) -> tuple[Outlier, ...]:
    kinds = np.stack([cycles.raw(name).astype(np.int64) for name in ("operation", "bytes", "lun")])
    _, kind = np.unique(kinds, axis=1, return_inverse=True)
    medians = medians_of(kind.ravel(), latencies_ns, int(kind.max()) + 1)[kind.ravel()]
    is_outlier = (latencies_ns > outliers.TIMES * medians) & (latencies_ns >= medians + outliers.LEAST_NS)
    rows = np.flatnonzero(is_outlier)
    rows = rows[np.argsort(-latencies_ns[rows], kind="stable")]
    columns = (cycles.raw("cycle")[rows], cycles.raw("command_first_ns")[rows], latencies_ns[rows])
    return tuple(Outlier(*each) for each in zip(*(column.tolist() for column in columns), strict=True))


def _without_status(cycles: Table, waited: Waits) -> Series:
    starts, waits_ns = cycles.raw("command_first_ns")[waited.is_open], waited.least_ns[waited.is_open]
    order = np.argsort(starts, kind="stable")
    return Series(starts[order], waits_ns[order])


def _distributions(curves: dict[str, Array], waited: Waits) -> dict[str, tuple[Array, Array]]:
    found = {}
    for name, chosen in curves.items():
        own = waited.select(chosen)
        if len(own.latencies_ns):
            found[name] = _cumulative(own.latencies_ns, len(own.slowest_ns))
    return found


def _curves(told: CommandGroups, waited: Waits) -> dict[str, Array]:
    """The rows of each group, those beyond GROUPS together as ``other``: of operations the most frequent first, else
    those with the longest median.
    """
    each, count = np.unique(told.places, return_counts=True)
    rank = -count
    if told.by != OPERATION:
        rank = np.array([-(waited.select(told.places == place).percentiles["p50"] or 0) for place in each.tolist()])
    order = each[np.argsort(rank, kind="stable")].tolist()
    found = {told.labels[place]: told.places == place for place in order[:GROUPS]}
    if len(order) > GROUPS:
        found["other"] = np.isin(told.places, order[GROUPS:])
    return found


def _points(times_ns: Array, values: Array, edges_ns: Array | None) -> Series:
    if edges_ns is None:
        return Series(times_ns, values)
    kept = extremes(times_ns, values, edges_ns)
    return Series(times_ns[kept], values[kept])


def _cumulative(values: Array, open_count: int = 0) -> tuple[Array, Array]:
    """Sorted latencies and the share that is no greater: up to CDF_POINTS of them, with the least and the greatest.

    ``open_count`` more have no status: they are greater than all.
    """
    ordered = np.sort(values)
    kept = np.unique(np.linspace(0, len(ordered) - 1, CDF_POINTS).astype(np.intp))
    return ordered[kept], (kept + 1) / (len(ordered) + open_count)


def _latency_edges(values: Array, count: int) -> Array:
    """Bins that grow by a constant factor, from the least to the greatest latency."""
    low, high = max(1, int(values.min())), max(2, int(values.max()))
    if high < 2 * low:
        low, high = low // 2, 2 * high
    edges = np.geomspace(low, high, count + 1)
    edges[0], edges[-1] = min(low, int(values.min())), high
    return edges


def _block_sizes(cycles: Table, curves: dict[str, Array], waited: Waits) -> dict[str, dict[int, dict[str, int]]]:
    """Percentiles by group and I/O size, for the commonest sizes; of reads and writes if there are any."""
    sizes = np.ma.filled(np.ma.asarray(cycles["bytes"]), 0)
    found: dict[str, dict[int, dict[str, int]]] = {}
    movers = [name for name in curves if name in ("read", "write")]
    for name in movers or curves:
        chosen = curves[name]
        each, count = np.unique(sizes[chosen & (sizes > 0)], return_counts=True)
        frequent = sorted(each[np.argsort(-count, kind="stable")][:BLOCK_SIZES].tolist())
        for block in frequent:
            of_size = waited.select(chosen & (sizes == block)).percentiles
            known = {key: value for key, value in of_size.items() if value is not None}
            if known["n"]:
                found.setdefault(name, {})[block] = known
    return found


# --- drawing


Look = tuple[str, str, Any]

# from pale to dark, readable without colour too
_HEAT = LinearSegmentedColormap.from_list("heat", ["#b5d8f0", style.SKY, style.BLUE, "#00263d"])
_LOOKS: dict[str, Look] = {"read": (style.BLUE, "o", "solid"), "write": (style.ORANGE, "s", "dashed")}
_OTHER_LOOKS: tuple[Look, ...] = (
    (style.GREEN, "^", "dashdot"),
    (style.PURPLE, "D", "dotted"),
    (style.VERMILLION, "v", (0, (5, 1, 1, 1, 1, 1))),
    (style.GREY, "x", (0, (1, 3))),
    (style.BLACK, "+", (0, (8, 2))),
    (style.SKY, "*", (0, (3, 1))),
)
_LOG_COUNT = 20
_TICK_IN = 0.5
"""Width of the label of a latency, with a gap."""
_PANEL_SHARE = 0.38
"""Width of a panel, as a share of that of the plot."""
_WITHOUT_LATENCY_NS = (1e3, 1e6)
"""Limits of an axis where no latency is above zero."""
_STRIP_SHARE = 0.16
"""Height of the strip of commands without a status, as a share of that of the latencies."""
_LABEL_ROOM = 0.17
"""Width of a label in the plot over time, as a share of the width."""
_SIDES = {1: "left", -1: "right"}
"""Alignment of a label to the right or left of its mark."""
_NO_STATUS: dict[str, Any] = {
    "linestyle": "none", "marker": "X", "markersize": 7, "color": style.BLACK, "markeredgecolor": "white",
    "markeredgewidth": 0.5, "zorder": 5,
}  # fmt: skip
_PERCENTILES = {"p50": ("o", 6), "p95": ("^", 6), "p99": ("D", 5), "max": ("_", 10)}


def draw(figure: Figure, latency: Latency) -> None:
    """Draws the four panels."""
    (over_time, distribution), (heat, block_sizes) = figure.subplots(2, 2)
    time = TimeAxis(latency.view)
    names = dict.fromkeys((*latency.over_time, *latency.distribution, *latency.block_sizes))
    if latency.by == OPERATION:
        looks = _LOOKS | dict(zip([name for name in names if name not in _LOOKS], _OTHER_LOOKS, strict=False))
    else:
        looks = dict(zip(names, (*_LOOKS.values(), *_OTHER_LOOKS), strict=False))
    _draw_over_time(over_time, latency, time, looks)
    _draw_distribution(distribution, latency, looks)
    _draw_heat(figure, heat, latency, time)
    _draw_block_sizes(block_sizes, latency, looks)


def notes(latency: Latency) -> list[str]:
    """Lists what the panels omit."""
    found = []
    if latency.is_decimated:
        found.append(f"{latency.task_count:,} commands; over time, each pixel column keeps its extremes")
    if len(latency.without_status):
        found.append(
            f"{count(len(latency.without_status), 'command')} without a status: in the strip at the top left with the "
            "time until the abort or the last packet of the connection; above all others in the curves and percentiles"
        )
    if latency.untold_count:
        found.append(f"not drawn: {count(latency.untold_count, 'command')} without data")
    if latency.outliers:
        found.append(
            f"{count(len(latency.outliers), 'outlier')}: more than {outliers.TIMES} times the median of the same "
            "operation, I/O size and LUN; the longest are named by the number of the command"
        )
    if latency.unsure_count:
        found.append(f"{count(latency.unsure_count, 'command')} of uncertain latency: not drawn")
    return found


def title(latency: Latency) -> str:
    """Names what the panels show."""
    noun = "command" if latency.task_count == 1 else "commands"
    by = "" if latency.by == OPERATION else f", by {GROUP_TITLES[latency.by]}"
    return f"Latency of {latency.task_count:,} SCSI {noun}, from command to status{by}"


def _scale(axes: Axes, which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    least = axes.dataLim.minposx if which == "x" else axes.dataLim.minposy
    if axes.has_data() and not np.isfinite(least):
        # clocks that were set back: no latency is above zero, and nothing can be drawn
        (axes.set_xlim if which == "x" else axes.set_ylim)(_WITHOUT_LATENCY_NS)
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    axis.set_minor_locator(NullLocator())


def _draw_over_time(axes: Axes, latency: Latency, time: TimeAxis, looks: dict[str, Look]) -> None:
    for name, line in latency.over_time.items():
        color, marker, _ = looks[name]
        axes.plot(
            time.of(line.times_ns), line.values, linestyle="none", marker=marker, markersize=3, color=color,
            markeredgewidth=0.5, label=name,
        )  # fmt: skip
    _scale(axes, "y")
    time.apply(axes)
    axes.set_ylabel("latency")
    if len(latency.without_status):
        _draw_without_status(axes, latency, time)
    _name_outliers(axes, latency, time)
    style.legend(axes, columns=3)


def _draw_without_status(axes: Axes, latency: Latency, time: TimeAxis) -> None:
    """Draws a strip above the latencies, with a mark for each command and the longest times in flight."""
    low, high = axes.get_ylim()
    # on a logarithmic axis: a share of the height
    axes.set_ylim(low, high * (high / low) ** _STRIP_SHARE)
    middle = 1 - _STRIP_SHARE / (1 + _STRIP_SHARE) / 2
    axes.axhspan(high, axes.get_ylim()[1], color=style.PALE, linewidth=0, zorder=0)
    marks = latency.without_status
    at = time.of(marks.times_ns)
    axes.plot(
        at, np.full(len(at), middle), transform=axes.get_xaxis_transform(), label="no status (time in flight)",
        **_NO_STATUS,
    )  # fmt: skip
    longest = np.argsort(-marks.values, kind="stable").tolist()
    for place, way in _with_room(axes, at[longest]):
        row = longest[place]
        axes.annotate(
            duration(float(marks.values[row])), (at[row], middle), xycoords=axes.get_xaxis_transform(),
            xytext=(6 * way, 0), textcoords="offset points", ha=_SIDES[way], va="center", fontsize=7.5,
        )  # fmt: skip


def _with_room(axes: Axes, at: Array) -> Iterator[tuple[int, int]]:
    """Of marks in one row those that have room for a label, by rank: the place of each, and 1 or -1 for a label to its
    right or left.
    """
    left, right = axes.get_xlim()
    room = _LABEL_ROOM * (right - left)
    taken: list[float] = []
    for place, mark in enumerate(at.tolist()):
        way = 1 if mark < (left + right) / 2 else -1
        middle = mark + way * room / 2
        if all(abs(middle - other) >= room for other in taken):
            taken.append(middle)
            yield place, way


def _name_outliers(axes: Axes, latency: Latency, time: TimeAxis) -> None:
    """Writes number and latency beside the longest outliers, where there is room."""
    at = time.of(np.array([each.time_ns for each in latency.outliers], dtype=np.int64))
    for place, way in islice(_with_room(axes, at), LABELS):
        outlier = latency.outliers[place]
        axes.annotate(
            f"{outlier.cycle}: {duration(outlier.latency_ns)}", (at[place], outlier.latency_ns), xytext=(4 * way, -3),
            textcoords="offset points", ha=_SIDES[way], va="top", fontsize=7,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
        )  # fmt: skip


def _draw_distribution(axes: Axes, latency: Latency, looks: dict[str, Look]) -> None:
    for name, (values, shares) in latency.distribution.items():
        color, _, dashes = looks[name]
        axes.plot(
            np.append(values[:1], values), np.append(0, shares) * 100, drawstyle="steps-post", color=color,
            linestyle=dashes, label=name,
        )  # fmt: skip
    _scale(axes, "x")
    _thin_ticks(axes)
    axes.set_xlabel("latency")
    axes.set_ylabel("% of commands")
    axes.set_ylim(0, 101)
    style.legend(axes, columns=3)


def _thin_ticks(axes: Axes) -> None:
    """Leaves those ticks of the logarithmic axis whose labels have room side by side."""
    figure, (low, high) = axes.get_figure(root=True), axes.get_xlim()
    room_in = _PANEL_SHARE * figure.get_figwidth() if figure else np.inf
    kept: list[float] = []
    for tick in np.asarray(axes.xaxis.get_major_locator()()).tolist():
        if low <= tick <= high and (not kept or np.log(tick / kept[-1]) * room_in >= _TICK_IN * np.log(high / low)):
            kept.append(tick)
    axes.xaxis.set_major_locator(FixedLocator(kept))


def _draw_heat(figure: Figure, axes: Axes, latency: Latency, time: TimeAxis) -> None:
    counts, most = np.ma.masked_equal(latency.heat, 0), int(latency.heat.max())
    mesh = axes.pcolormesh(
        time.of(latency.time_edges_ns), latency.latency_edges_ns, counts, cmap=_HEAT, rasterized=True,
        norm=LogNorm(1, most) if most > _LOG_COUNT else Normalize(0, most),
    )  # fmt: skip
    bar = figure.colorbar(mesh, ax=axes, pad=0.01)
    bar.set_label("commands")
    if most > _LOG_COUNT:
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        bar.ax.minorticks_off()
    else:
        bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    _scale(axes, "y")
    time.apply(axes)
    axes.set_ylabel("latency")
    axes.set_title("darker: more commands", fontsize=8, loc="left")


def _draw_block_sizes(axes: Axes, latency: Latency, looks: dict[str, Look]) -> None:
    sizes = sorted({each for found in latency.block_sizes.values() for each in found})
    if not sizes:
        style.write_text(axes, "no command moved data")
        return
    names = list(latency.block_sizes)
    gap = min(0.25, 0.8 / len(names))
    drawn: set[str] = set()
    for number, name in enumerate(names):
        found = latency.block_sizes[name]
        shift = gap * (number - (len(names) - 1) / 2)
        places = np.array([sizes.index(each) for each in found]) + shift
        color = looks[name][0]
        axes.plot([], [], color=color, label=name)
        axes.vlines(
            places,
            [each["p50"] for each in found.values()],
            [each["max"] for each in found.values()],
            color=color,
            linewidth=1,
        )
        for key, (marker, mark_size) in _PERCENTILES.items():
            heights = np.array([each.get(key, np.nan) for each in found.values()])
            is_there = np.isfinite(heights)
            if not is_there.any():
                continue
            drawn.add(key)
            axes.plot(
                places[is_there], heights[is_there], linestyle="none", marker=marker,
                markersize=mark_size, color=color, markeredgecolor=color if marker == "_" else "white",
                markeredgewidth=1.5 if marker == "_" else 0.5,
            )  # fmt: skip
    open_ones = [
        (sizes.index(each) + gap * (number - (len(names) - 1) / 2), found["max"])
        for number, name in enumerate(names)
        for each, found in latency.block_sizes[name].items()
        if found.get("open_count")
    ]
    if open_ones:
        axes.plot(*zip(*open_ones, strict=True), label="no status", **_NO_STATUS)
    for key, (marker, mark_size) in _PERCENTILES.items():
        if key in drawn:
            axes.plot([], [], linestyle="none", marker=marker, markersize=mark_size, color=style.BLACK, label=key)
    _scale(axes, "y")
    axes.set_xticks(range(len(sizes)), [size(each) for each in sizes], rotation=30 if len(sizes) > 6 else 0)
    axes.set_xlim(-0.6, len(sizes) - 0.4)
    axes.set_xlabel("I/O size, bytes (K, M of 1024)")
    axes.set_ylabel("latency")
    style.legend(axes, columns=6)


def prepare(trace: TraceTables, view: View, detail: Detail) -> Latency:
    """The latencies of a view."""
    told = groups_of(trace, detail.by) if detail.by else None
    return compute(trace.cycles, waits.of_trace(trace.table), view, detail, told)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="Every command, top left. A step in the cumulative curve on the right is a second group of commands.",
    tables=with_events(),
    pictures=whole_session("Latency"),
    is_told_apart=True,
    place=6,
)
