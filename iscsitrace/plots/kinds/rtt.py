"""Round-trip time under load over time, the queue above its least, and retransmissions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import path
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind, view_of_streams, whole_session, with_events
from iscsitrace.plots.marks import Array, Detail, even_edges
from iscsitrace.plots.style import DurationAxis, TimeAxis, duration
from iscsitrace.plots.view import View
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.numbers import Partition
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording.amounts import count

WINDOW_NS = 250_000_000
"""The length of a row of the table ``rtt``."""
_MARK_COLUMNS = 400
"""Retransmissions of one cause that are apart by less than a share of the view of 1/400 are one mark."""


@dataclass(frozen=True)
class RttCurve:
    """The round-trip time of one connection, while data of one direction were in flight."""

    connection: int
    to_target: bool
    path_ns: int | None
    """The least of the path; None where no packets show it."""
    edges_ns: Array
    """Where each step begins, and the end of the last; NaN in between where nothing was measured."""
    least_ns: Array
    median_ns: Array
    """Of a step of several windows, the highest of them."""
    queue_ns: int
    """How long a queue stood in the whole capture, and its median delay."""
    queue_delay_ns: int | None
    retransmissions: dict[str, Array]
    """When, by cause."""

    @property
    def above_ns(self) -> float:
        """How far the medians are above the path, in all."""
        return float(np.nansum(self.median_ns - (self.path_ns or 0)))


@dataclass(frozen=True)
class RttCurves:
    """The connections of a view: all that were measured, or those with the longest queues."""

    view: View
    courses: tuple[RttCurve, ...]
    measured_count: int
    connection_count: int
    is_decimated: bool


def compute(
    rtt: Table, connections: Table, senders: Table, retransmissions: Table, view: View, detail: Detail
) -> RttCurves:
    """The courses of a view; InputInvalid where the packets do not show the round trip under load."""
    rows = rtt.select(
        np.isin(rtt.raw("connection"), view.connections)
        & (rtt.raw("time_ns") <= view.end_ns)
        & (rtt.raw("time_ns") + WINDOW_NS > view.start_ns)
    )
    if not len(rows):
        raise InputInvalid(
            "nothing to draw: the round-trip time under load cannot be told from this capture: fewer than two segments "
            "were in flight, or the tap is far from the sender and the packets have no TCP timestamps"
        )
    steps = even_edges(view.start_ns, view.end_ns + 1, detail.columns)
    is_decimated = len(steps) < (view.end_ns - view.start_ns) / WINDOW_NS
    paths = dict(zip(connections.raw("connection").tolist(), _paths_ns(connections, senders), strict=True))
    found = []
    measured, sent, again_of = (Partition(each, each.raw("connection")) for each in (rows, senders, retransmissions))
    for number in measured:
        own = measured.rows(number)
        # the round trip is the same with data of either direction
        to_target = view.to_target if (own.raw("to_target") == view.to_target).any() else not view.to_target
        own = own.select(own.raw("to_target") == to_target)
        edges, least, median = _steps(own, steps if is_decimated else None)
        queue_ns, delay_ns = _queue(sent.rows(number), to_target=to_target)
        again = _times_by_cause(again_of.rows(number), view, to_target=to_target)
        found.append(RttCurve(number, to_target, paths[number], edges, least, median, queue_ns, delay_ns, again))
    shown = found
    if len(found) > detail.top:
        worst = sorted(found, key=lambda each: -each.above_ns)[: detail.top]
        shown = [each for each in found if each in worst]
    return RttCurves(view, tuple(shown), len(found), len(view.connections), is_decimated)


def _paths_ns(connections: Table, senders: Table) -> list[int | None]:
    """The RTT of the path of each connection: the sum of the least to both sides of the tap."""
    rtts = path.least_rtts(connections, senders)
    whole = np.where((rtts >= 0).all(axis=0), rtts.sum(axis=0), -1)
    return [each if each >= 0 else None for each in whole.tolist()]


def _steps(rows: Table, steps_ns: Array | None) -> tuple[Array, Array, Array]:
    """Edges, and the least and the median of each step: of each window, or of the windows that begin in a step."""
    times, least, median = (rows.raw(name) for name in ("time_ns", "rtt_least_ns", "rtt_median_ns"))
    if steps_ns is None:
        first_ns = int(times[0])
        steps_ns = first_ns + WINDOW_NS * np.arange((int(times[-1]) - first_ns) // WINDOW_NS + 2)
    place = np.clip(np.searchsorted(steps_ns, times, side="right") - 1, 0, len(steps_ns) - 2)
    lows, highs = np.full(len(steps_ns) - 1, np.inf), np.full(len(steps_ns) - 1, -np.inf)
    np.minimum.at(lows, place, least)
    np.maximum.at(highs, place, median)
    is_empty = lows > highs
    lows[is_empty] = highs[is_empty] = np.nan
    return steps_ns, lows, highs


def _queue(senders: Table, *, to_target: bool) -> tuple[int, int | None]:
    chosen = np.flatnonzero(senders.raw("to_target") == to_target)
    if not len(chosen):
        return 0, None
    own = senders.select(chosen[:1])
    delay_ns = int(numbers_of(own, "standing_queue_delay_ns")[0])
    return int(own.raw("standing_queue_ns")[0]), delay_ns if delay_ns >= 0 else None


def _times_by_cause(retransmissions: Table, view: View, *, to_target: bool) -> dict[str, Array]:
    """The first retransmission of a connection in each pixel column, by cause."""
    own = retransmissions.select(
        (retransmissions.raw("to_target") == to_target) & view.covers(retransmissions.raw("time_ns"))
    )
    times, causes = own.raw("time_ns"), own["cause"]
    column_ns = max(1, (view.end_ns - view.start_ns) // _MARK_COLUMNS)
    found = {}
    for cause in own.words("cause"):
        of_cause = np.sort(times[causes == cause])
        if len(of_cause):
            found[cause] = of_cause[np.unique(of_cause // column_ns, return_index=True)[1]]
    return found


# --- drawing


_PANEL_IN = 1.2
_ROOM_IN = 2.0
"""Height of the plot besides its panels."""
_TOP = 0.94
_LOW = 0.15
"""Height of the marks of retransmissions, as a share of a panel."""


def height_in(found: RttCurves) -> float:
    """The height for a panel of each connection."""
    return max(0.75 * style.HEIGHT_IN, _ROOM_IN + _PANEL_IN * len(found.courses))


def draw(figure: Figure, found: RttCurves) -> None:
    """Draws a panel for each connection, on one time axis and one scale."""
    panels = figure.subplots(len(found.courses), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    time = TimeAxis(found.view)
    amounts = DurationAxis(max(float(np.nanmax(each.median_ns)) for each in found.courses))
    top = 1.15 * max(amounts.at(float(np.nanmax(each.median_ns))) for each in found.courses)
    for axes, course in zip(panels, found.courses, strict=True):
        _draw_course(axes, course, time, amounts, top)
        axes.set_ylabel(f"connection {course.connection}\nRTT, {amounts.unit}")
    panels[0].set_ylim(0, top)
    time.apply(panels[-1])
    style.legend(panels[0], *panels, columns=5)


def _draw_course(axes: Axes, course: RttCurve, time: TimeAxis, amounts: DurationAxis, top: float) -> None:
    edges = time.of(course.edges_ns)
    least, median = amounts.of(course.least_ns), amounts.of(course.median_ns)
    if course.path_ns is not None:
        base = amounts.at(course.path_ns)
        middle = np.fmax(base, least)
        for low, high, alpha, label in (
            (np.full(len(least), base), middle, 0.75, "lowest RTT of 250 ms"),
            (middle, np.fmax(middle, median), 0.3, "from the lowest to the median RTT of 250 ms"),
        ):
            axes.stairs(
                np.where(np.isnan(median), np.nan, high), edges, baseline=low, fill=True, color=style.ORANGE,
                alpha=alpha, linewidth=0, label=label,
            )  # fmt: skip
        axes.axhline(base, color=style.GREEN, linestyle=(0, (5, 2)), linewidth=1.4, label="minimum RTT of the path")
        # below the line, unless the axis is there
        offset, side = (-3, "top") if base > _LOW * top else (3, "bottom")
        axes.annotate(
            duration(course.path_ns), (1, base), xycoords=axes.get_yaxis_transform(), xytext=(-3, offset),
            textcoords="offset points", ha="right", va=side, fontsize=7.5, zorder=6,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )  # fmt: skip
    axes.plot(
        edges, np.append(median, median[-1]), drawstyle="steps-post", color=style.BLUE, linewidth=1.4,
        label="median RTT of 250 ms",
    )  # fmt: skip
    for cause, times in course.retransmissions.items():
        marker, label = style.RETRANSMISSION_MARKS[cause]
        axes.plot(
            time.of(times), np.full(len(times), _TOP), linestyle="none", marker=marker, markersize=6,
            color=style.VERMILLION, markeredgecolor="white", markeredgewidth=0.5, zorder=5, label=label,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip


def notes(found: RttCurves) -> Iterator[str]:
    """What stood in the way, and what is left out."""
    for course in found.courses:
        if course.queue_ns and course.queue_delay_ns is not None:
            yield (
                f"connection {course.connection}: a standing queue lasted {duration(course.queue_ns)} of the capture "
                f"and delayed the data by {duration(course.queue_delay_ns)} (median)"
            )
        if course.path_ns is None:
            yield f"connection {course.connection}: the minimum RTT of the path cannot be told from this capture"
    if found.is_decimated:
        yield "each pixel column has the lowest and the highest median of its time"
    if (unknown := found.connection_count - found.measured_count) > 0:
        yield f"the RTT under load of {count(unknown, 'more connection')} cannot be told from this capture"
    if len(found.courses) < found.measured_count:
        yield f"{len(found.courses)} of {found.measured_count:,} connections: those with the longest queues"


def title(found: RttCurves) -> str:
    """Names what the panels show."""
    sides = {each.to_target for each in found.courses}
    whose = {True: ", data to the target", False: ", data to the initiator"}[sides.pop()] if len(sides) == 1 else ""
    return f"Round-trip time under load{whose}"


def prepare(trace: TraceTables, view: View, detail: Detail) -> RttCurves:
    """The courses of a view."""
    return compute(trace.rtt, trace.connections, trace.senders, trace.retransmissions, view, detail)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=lambda found: list(notes(found)),
    how_to_read="The dashed line is the minimum RTT of the path. The shaded area above it is mostly time in queues. A "
    "high dark area that lasts is a queue that never empties. Red marks are retransmissions.",
    tables=with_events("rtt", "senders", "retransmissions"),
    view=view_of_streams,
    pictures=whole_session("Round-trip time"),
    height_in=height_in,
    has_top=True,
    place=7,
)
