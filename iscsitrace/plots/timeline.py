"""The time line of a plot over time: outages shaded in the plot, a strip of marks below it, and a strip of commands
above it, each when it was in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import Bbox

from iscsitrace.events import selection
from iscsitrace.plots import style
from iscsitrace.plots.marks import Array, Spans
from iscsitrace.plots.style import TIME, TimeAxis
from iscsitrace.plots.view import View, seen_cycles
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table
from iscsitrace.wording.event_kinds import DATA_LOSS, ERROR, INFO, WARNING

LAYERS: Final = ("TCP", "iSCSI", "SCSI")
_COLUMNS: Final = 800
"""Marks of one sort and severity that are apart by less than a share of the view of 1/800 are one."""


@dataclass(frozen=True)
class Sort:
    """Events that a plot shows with one mark."""

    name: str
    layer: str
    kinds: tuple[str, ...]
    is_shown_as_info: bool = True
    """Whether events that healthy traffic has are shown under plots."""


SORTS: Final = (
    Sort("connection opened", "TCP", ("tcp_open",), is_shown_as_info=False),
    Sort("RST or close", "TCP", ("tcp_reset", "tcp_closed")),
    Sort("refused or no answer", "TCP", ("tcp_refused", "tcp_unanswered", "tcp_silent")),
    Sort("TCP recovery", "TCP", ("recovery",), is_shown_as_info=False),
    Sort("capture incomplete", "TCP", ("capture_incomplete", "capture_end"), is_shown_as_info=False),
    Sort("login", "iSCSI", ("login", "login_redirected", "discovery")),
    Sort("login again", "iSCSI", ("relogin", "session_reinstated")),
    Sort("login failed", "iSCSI", ("login_refused", "login_unfinished", "key_mismatch")),
    Sort("logout", "iSCSI", ("logout",)),
    Sort("NOP timeout", "iSCSI", ("nop_timeout",)),
    Sort(
        "iSCSI error or message",
        "iSCSI",
        ("reject", "async_message", "digest_error", "protocol_violation"),
        is_shown_as_info=False,
    ),
    Sort("abort or reset", "SCSI", ("task_management",)),
    Sort(
        "bad status",
        "SCSI",
        ("check_condition", "reservation_conflict", "busy", "task_set_full", "command_failed"),
        is_shown_as_info=False,
    ),
    Sort("no status", "SCSI", ("no_status",)),
)
"""All kinds of events but ``outage``, which is shaded."""

_SEVERITIES: Final = CATEGORIES["severity"]


@dataclass(frozen=True)
class Marks:
    """The events of one sort and severity, in order of time."""

    sort: Sort
    severity: str
    times_ns: Array
    ends_ns: Array
    """When each ended; its time, where it has no length."""


@dataclass(frozen=True)
class Timeline:
    """The events of a view."""

    view: View
    marks: tuple[Marks, ...]
    outages: Spans

    @property
    def is_quiet(self) -> bool:
        """Whether there are none but those of healthy traffic."""
        return not len(self.outages) and all(each.severity == INFO for each in self.marks)


def of_view(events: Table, connections: Table, view: View) -> Timeline:
    """The events of the connections of a view and of their sessions, as far as they are within its time."""
    seen = events.select(_is_of(events, connections, view))
    seen = seen.select((seen.raw("time_ns") <= view.end_ns) & (selection.ends_ns(seen, view.end_ns) >= view.start_ns))
    return Timeline(view, marks(seen, view), outages(seen, view))


def outages(events: Table, view: View) -> Spans:
    """The outages among them, each to its end or that of the view."""
    own = events.select(events.raw("kind") == CATEGORIES["event_kind"].index("outage"))
    return Spans(own.raw("time_ns"), selection.ends_ns(own, view.end_ns))


def marks(events: Table, view: View, *, has_all: bool = False) -> tuple[Marks, ...]:
    """The others by sort and severity; ``has_all`` keeps those that healthy traffic has many of."""
    kinds = CATEGORIES["event_kind"]
    found = []
    for sort in SORTS:
        own = events.select(np.isin(events.raw("kind"), [kinds.index(kind) for kind in sort.kinds]))
        for code, severity in enumerate(_SEVERITIES):
            if severity == INFO and not (has_all or sort.is_shown_as_info):
                continue
            chosen = own.select(own.raw("severity") == code)
            if len(chosen):
                found.append(_thinned(sort, severity, chosen, view))
    return tuple(found)


def _thinned(sort: Sort, severity: str, events: Table, view: View) -> Marks:
    """One mark of each pixel column: the one that lasts longest."""
    times, ends = events.raw("time_ns"), selection.ends_ns(events, None)
    column_ns = max(1, (view.end_ns - view.start_ns) // _COLUMNS)
    order = np.lexsort((times - ends, times // column_ns))
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = np.diff(times[order] // column_ns) != 0
    kept = np.sort(order[is_first])
    return Marks(sort, severity, times[kept], ends[kept])


def _is_of(events: Table, connections: Table, view: View) -> Array:
    """Which events are of the connections of a view, of their sessions, or of tries between the same hosts."""
    rows = list(
        connections.rows(("connection", "session", "initiator_address", "target_address", "target_port", "is_iscsi"))
    )
    own = [row for row in rows if row["connection"] in set(view.connections)]
    places = {(row["initiator_address"], row["target_address"], row["target_port"]) for row in own}
    tries = [
        row["connection"]
        for row in rows
        if row["session"] is None and (row["initiator_address"], row["target_address"], row["target_port"]) in places
    ]
    sessions = [row["session"] for row in own if row["session"] is not None]
    has_connection = known(events, "connection")
    found: Array = has_connection & np.isin(events.raw("connection"), [*view.connections, *tries])
    found |= ~has_connection & known(events, "session") & np.isin(events.raw("session"), sessions)
    return found


_HEIGHT_IN: Final = 0.62
_GAP_IN: Final = 0.06
_MARKERS: Final = dict(
    zip(
        (sort.name for sort in SORTS),
        ("o", "X", "x", "^", "d", ">", "P", "s", "<", "*", "h", "D", "v", "_"),
        strict=True,
    )
)
COLORS: Final = {INFO: style.GREY, WARNING: style.ORANGE, DATA_LOSS: style.PURPLE, ERROR: style.VERMILLION}
OUTAGE: Final = "outage: no I/O completes"
_MEANINGS: Final = {ERROR: "error", WARNING: "warning", DATA_LOSS: "missing from the capture", INFO: "information"}
_THIN: Final = "x_"
_KEY_COLUMNS: Final = 6
_KEY_POINTS: Final = 7.5
_ROOM_IN: Final = 1.2
_SHADE: Final[dict[str, Any]] = {"facecolor": style.VERMILLION, "alpha": 0.16, "linewidth": 0, "zorder": 0.5}


def draw(figure: Figure, timeline: Timeline) -> None:
    """Shades outages in the axes over time, and adds a strip of marks below the first; nothing if all is healthy."""
    own = [axes for axes in figure.axes if axes.get_label() == TIME]
    if timeline.is_quiet or not own:
        return
    time = TimeAxis(timeline.view)
    for axes in {id(each): each for one in own for each in (one, *one.get_shared_x_axes().get_siblings(one))}.values():
        shade(axes, timeline.outages, time)
    _draw_strip(own[0], timeline, time)


def shade(axes: Axes, outages: Spans, time: TimeAxis) -> None:
    """Shades the time of each outage over the height of the axes."""
    limits = axes.get_xlim()
    for start, end in zip(time.of(outages.starts_ns), time.of(outages.ends_ns), strict=True):
        axes.axvspan(start, end, **_SHADE)
    axes.set_xlim(limits)


def _draw_strip(above: Axes, timeline: Timeline, time: TimeAxis) -> None:
    strip = above.inset_axes((0, -0.3, 1, 0.2), sharex=above)
    strip.set_axes_locator(_Below(above))
    strip.set_xlabel(above.get_xlabel())
    above.set_xlabel("")
    above.tick_params(labelbottom=False)
    strip.set_ylim(len(LAYERS) - 0.4, -0.6)
    strip.set_yticks(range(len(LAYERS)), LAYERS, fontsize=7)
    # a mark at the start of the axis reaches over it
    strip.tick_params(axis="y", length=0, pad=7)
    strip.grid(visible=False, axis="y")
    shade(strip, timeline.outages, time)
    rows = [float(LAYERS.index(marks.sort.layer)) for marks in timeline.marks]
    draw_marks(strip, timeline.marks, timeline.view, rows)
    handles, labels = key(timeline.marks, has_outage=len(timeline.outages) > 0)
    place = above.get_subplotspec()
    is_across = place is not None and place.get_gridspec().ncols > 1
    top = -0.42 / _HEIGHT_IN
    made = style.fitted_legend(
        strip, handles, labels, _KEY_COLUMNS, beside=above, is_across=is_across, loc="upper left",
        bbox_to_anchor=(0.0, top), fontsize=_KEY_POINTS, borderaxespad=0, columnspacing=1.2, handletextpad=0.7,
        labelspacing=0.5,
    )  # fmt: skip
    if is_across:
        # it reaches below the axes on the right, which keep their places; lines without text keep its height free
        made.set_in_layout(False)
        lines = max(1, round(made.get_window_extent().height / (1.5 * _KEY_POINTS * style.DPI / 72)))
        empty = "\n".join([" "] * lines)
        strip.text(0, top, empty, transform=strip.transAxes, va="top", fontsize=_KEY_POINTS, linespacing=1.5)


def room_in(timeline: Timeline) -> float:
    """The height that a plot needs more for the strip."""
    return 0.0 if timeline.is_quiet else _ROOM_IN


def draw_marks(axes: Axes, every: tuple[Marks, ...], view: View, rows: list[float]) -> None:
    """Draws the marks of each sort in a row: a line for as long as it lasted, and its mark where it began."""
    time = TimeAxis(view)
    for marks, row in zip(every, rows, strict=True):
        color, marker = COLORS[marks.severity], _MARKERS[marks.sort.name]
        order = 3 + list(COLORS).index(marks.severity)
        starts, ends = np.maximum(marks.times_ns, view.start_ns), np.minimum(marks.ends_ns, view.end_ns)
        is_long = ends > starts
        if is_long.any():
            axes.hlines(
                np.full(is_long.sum(), row), time.of(starts[is_long]), time.of(ends[is_long]), color=color,
                linewidth=2.2, alpha=0.55, zorder=2.5,
            )  # fmt: skip
        at = time.of(marks.times_ns[marks.times_ns >= view.start_ns])
        # without a mark it would take room of its own
        if len(at):
            # a mark at the end of the axis is whole
            axes.plot(
                at, np.full(len(at), row), linestyle="none", color=color, zorder=order, clip_on=False, **_look(marker)
            )


def key(every: tuple[Marks, ...], *, has_outage: bool) -> tuple[list[Any], list[str]]:
    """Handles and labels of a legend: the marks by shape, then what the colours mean."""
    found: dict[str, Any] = {}
    if has_outage:
        found[OUTAGE] = Patch(**{**_SHADE, "alpha": 0.3})
    for marks in every:
        look = _look(_MARKERS[marks.sort.name])
        found[marks.sort.name] = Line2D([], [], linestyle="none", color=style.BLACK, **look)
    shown = {marks.severity for marks in every}
    for severity, meaning in _MEANINGS.items():
        if severity in shown:
            found[meaning] = Line2D([], [], color=COLORS[severity], linewidth=4)
    return list(found.values()), list(found)


def _look(marker: str) -> dict[str, Any]:
    if marker in _THIN:
        return {"marker": marker, "markersize": 6.5, "markeredgewidth": 1.8}
    return {
        "marker": marker,
        "markersize": 10 if marker == "*" else 6.5,
        "markeredgewidth": 0.6,
        "markeredgecolor": "white",
    }


class _Below:
    """Places a strip of fixed height below its axes, which is also what the layout makes room for."""

    def __init__(self, above: Axes) -> None:
        self.above = above

    def __call__(self, axes: Any, renderer: Any) -> Bbox:
        figure = self.above.get_figure(root=True)
        height_in = figure.get_size_inches()[1] if figure else 1.0
        box = self.above.get_position()
        top = box.y0 - _GAP_IN / height_in
        return Bbox.from_extents(box.x0, top - _HEIGHT_IN / height_in, box.x1, top)


LANES = 4
TASK_LIMIT = 300
"""Commands up to which each has a bar; more are joined into the stretches in which any was in flight."""


@dataclass(frozen=True)
class Tasks:
    """Commands of a view: number, operation, time from command to status, and lane, counted from 0.

    ``outstanding`` replaces them where there are too many.
    """

    cycles: tuple[int, ...] = ()
    operations: tuple[str, ...] = ()
    spans: Spans = field(default_factory=Spans)
    lanes: tuple[int, ...] = ()
    outstanding: Spans = field(default_factory=Spans)
    count: int = 0


def tasks_of_view(cycles: Table, view: View) -> Tasks:
    """The commands in flight in a view; one of which no end is known lasts until the end of the view."""
    starts, has_end = cycles.raw("command_first_ns"), known(cycles, "end_ns")
    ends = np.where(has_end, cycles.raw("end_ns"), view.end_ns)
    places = np.flatnonzero(seen_cycles(cycles, view, np.where(has_end, ends, starts)))
    seen, starts, ends = cycles.select(places), starts[places], ends[places]
    if len(seen) > TASK_LIMIT:
        return Tasks(outstanding=union(starts, ends, view), count=len(seen))
    return Tasks(
        cycles=tuple(seen.raw("cycle").tolist()),
        operations=tuple(word or "unknown" for word in seen["operation"].tolist()),
        spans=Spans(starts, ends),
        lanes=_lanes(starts, ends),
        count=len(seen),
    )


def union(starts_ns: Array, ends_ns: Array, view: View) -> Spans:
    """The stretches that at least one span covers; gaps of less than a pixel are closed."""
    pixel_ns = (view.end_ns - view.start_ns) // 2000
    order = np.argsort(starts_ns, kind="stable")
    starts, reached = starts_ns[order], np.maximum.accumulate(ends_ns[order])
    is_first = np.ones(len(starts), dtype=bool)
    is_first[1:] = starts[1:] > reached[:-1] + pixel_ns
    is_last = np.append(is_first[1:], True)
    return Spans(starts[is_first], reached[is_last])


def _lanes(starts_ns: Array, ends_ns: Array) -> tuple[int, ...]:
    """The first free lane at the start of each span; else the last lane."""
    free_ns = [np.iinfo(np.int64).min] * LANES
    lanes = []
    for start, end in zip(starts_ns.tolist(), ends_ns.tolist(), strict=True):
        lane = next((number for number, until in enumerate(free_ns) if until <= start), LANES - 1)
        free_ns[lane] = max(free_ns[lane], end)
        lanes.append(lane)
    return tuple(lanes)


_LABEL_SHARE = 0.022
"""Smallest bar, as a share of the width, that has room for its number."""


def draw_tasks(axes: Axes, tasks: Tasks, time: TimeAxis) -> None:
    """Draws a bar from command to status; overlapping commands are stacked."""
    time.apply(axes, has_label=False)
    axes.grid(visible=False)
    axes.set_yticks([])
    axes.tick_params(axis="x", bottom=False, labelbottom=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    if tasks.count:
        axes.set_ylabel("commands", rotation=0, ha="right", va="center")
    lane_count = max(tasks.lanes, default=0) + 1
    axes.set_ylim(min(lane_count, LANES), 0)
    if len(tasks.outstanding):
        starts, ends = time.of(tasks.outstanding.starts_ns), time.of(tasks.outstanding.ends_ns)
        axes.broken_barh(
            list(zip(starts, ends - starts, strict=True)), (0, 1), color=style.GREY, label="commands in flight"
        )
        return
    starts, ends = time.of(tasks.spans.starts_ns), time.of(tasks.spans.ends_ns)
    low, high = axes.get_xlim()
    shown = set()
    for cycle, operation, start, end, lane in zip(
        tasks.cycles, tasks.operations, starts, ends, tasks.lanes, strict=True
    ):
        name = operation if operation in style.OPERATION_MARKS else "other command"
        color, hatch = style.operation_mark(operation)[0], "//" if operation == "write" else ""
        axes.barh(
            lane + 0.5, end - start, left=start, height=0.8, color=color, hatch=hatch, edgecolor="white",
            linewidth=0.3, label=name if name not in shown else None,
        )  # fmt: skip
        shown.add(name)
        if lane_count <= 2 and min(end, high) - max(start, low) > _LABEL_SHARE * (high - low):
            middle = (max(start, low) + min(end, high)) / 2
            axes.text(middle, lane + 0.5, str(cycle), ha="center", va="center", color="white", fontsize=7, clip_on=True)
