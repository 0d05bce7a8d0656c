"""Bytes in flight, congestion window and receive window of one sender."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import style, timeline, xplot
from iscsitrace.plots.kind import Kind, view_of_connection, whole_session, with_events
from iscsitrace.plots.marks import Array, Detail, Series, SeriesMaker, Spans, chunks, extremes
from iscsitrace.plots.style import ByteAxis, TimeAxis
from iscsitrace.plots.view import View
from iscsitrace.tables.table import Table, null_value
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording.amounts import percent

_NULL = null_value("int64")
RECOVERY_LIMIT = 300
"""Recoveries beyond which those less than a pixel apart are joined."""


@dataclass(frozen=True)
class Window:
    """The curves of one sender."""

    view: View
    change_count: int
    """Rows of the table in the view."""
    is_decimated: bool
    owin: Series
    pipe: tuple[Series, ...]
    """Only where it differs from owin: a line for each stretch."""
    rwnd: tuple[Series, ...]
    """A line for each stretch in which it is known."""
    cwnd: tuple[Series, ...]
    """The estimated congestion window: a line for each stretch in which it is valid."""
    valid_share: float
    """Share of the view's time in which the estimate is valid."""
    kernel_cwnd: Series = field(default_factory=Series)
    """The congestion window of the kernel's TCP_INFO, where there are samples of the sender's host."""
    kernel_ssthresh: Series = field(default_factory=Series)
    """Its slow start threshold, where it has one."""
    retransmissions: dict[str, Series] = field(default_factory=dict)
    """By cause: when, and owin at that time."""
    recoveries: Spans = field(default_factory=Spans)
    tasks: timeline.Tasks = field(default_factory=timeline.Tasks)


def compute(
    window: Table,
    retransmissions: Table,
    recoveries: Table,
    cycles: Table,
    view: View,
    detail: Detail | None = None,
    tcp_info: Table | None = None,
) -> Window:
    """The curves of the view's connection and direction; InputInvalid without data in the view or before it."""
    detail = detail or Detail()
    rows = _rows(window, view)
    times = window.raw("time_ns")[rows]
    # from the row that is valid at the start of the view to the last one in it
    first, last = np.searchsorted(times, [view.start_ns, view.end_ns + 1]).tolist()
    if not last:
        raise InputInvalid(
            f"nothing to draw: connection {view.connection} has no bytes in flight in the view, or before it"
        )
    rows = slice(rows.start + max(0, first - 1), rows.start + last)
    edges = detail.edges(last - first, view.start_ns, view.end_ns)
    owin = _line(window, "owin_bytes", rows, view, edges)
    cwnd, valid_ns = _runs(window, "cwnd_estimate_bytes", window.raw("is_valid")[rows], rows, view, edges)
    is_apart = window.raw("pipe_bytes")[rows] != window.raw("owin_bytes")[rows]
    return Window(
        view=view,
        change_count=last - first,
        is_decimated=edges is not None,
        owin=owin,
        pipe=_runs(window, "pipe_bytes", is_apart, rows, view, edges)[0],
        rwnd=_runs(window, "rwnd_bytes", np.ones(len(is_apart), dtype=bool), rows, view, edges)[0],
        cwnd=cwnd,
        valid_share=valid_ns / (view.end_ns - view.start_ns),
        kernel_cwnd=_kernel_line(tcp_info, "cwnd_segments", view, detail),
        kernel_ssthresh=_kernel_line(tcp_info, "ssthresh_segments", view, detail),
        retransmissions=_retransmissions(retransmissions, owin, view, edges),
        recoveries=_recoveries(recoveries, view),
        tasks=timeline.tasks_of_view(cycles, view),
    )


def _rows(table: Table, view: View) -> slice:
    """The rows of the view's connection and direction, which are adjacent and in order of time."""
    is_wanted = view.is_of(table)
    first = int(np.append(is_wanted, True).argmax())
    return slice(first, first + int(is_wanted.sum()))


def _line(window: Table, name: str, rows: slice, view: View, edges_ns: Array | None) -> Series:
    maker = SeriesMaker(view.start_ns, view.end_ns, edges_ns)
    times, values = window.raw("time_ns")[rows], window.raw(name)[rows]
    for part in chunks(len(times)):
        is_known = values[part] != _NULL
        maker.add(times[part][is_known], values[part][is_known])
    return maker.line()


def _kernel_line(samples: Table | None, name: str, view: View, detail: Detail) -> Series:
    """A window of TCP_INFO in bytes: the kernel counts it in segments."""
    if samples is None:
        return Series()
    own = samples.select(view.is_of(samples))
    times, values, sizes = own.raw("time_ns"), own[name], own["segment_bytes"]
    is_known = ~(np.ma.getmaskarray(values) | np.ma.getmaskarray(sizes))
    # with the sample before the view, which holds at its start
    first, last = np.searchsorted(times, [view.start_ns, view.end_ns + 1]).tolist()
    is_known[: max(0, first - 1)] = False
    is_known[last:] = False
    maker = SeriesMaker(view.start_ns, view.end_ns, detail.edges(int(is_known.sum()), view.start_ns, view.end_ns))
    maker.add(times[is_known], np.ma.getdata(values)[is_known].astype(np.int64) * np.ma.getdata(sizes)[is_known])
    return maker.line()


def _runs(
    window: Table, name: str, is_wanted: Array, rows: slice, view: View, edges_ns: Array | None
) -> tuple[tuple[Series, ...], int]:
    """A line for each run of wanted rows with a value, held until the row that ends it; and their total time."""
    times, values = window.raw("time_ns")[rows], window.raw(name)[rows]
    is_valid = is_wanted & (values != _NULL)
    if not is_valid.any():
        return (), 0
    change = np.flatnonzero(np.diff(is_valid, prepend=False, append=False))
    starts, ends = change[::2], change[1::2]
    until_ns = np.append(times, view.end_ns)[ends]
    since_ns = np.maximum(times[starts], view.start_ns)
    valid_ns = int(np.maximum(until_ns - since_ns, 0).sum())
    if edges_ns is None:
        kept = np.flatnonzero(is_valid)
    else:
        places = np.flatnonzero(is_valid)
        kept = places[extremes(times[places], values[places], edges_ns)]
    run = np.searchsorted(starts, kept, side="right") - 1
    lines = []
    for chosen in np.split(kept, np.flatnonzero(np.diff(run)) + 1):
        number = run[np.searchsorted(kept, chosen[0])]
        held_ns = np.append(np.maximum(times[chosen], view.start_ns), until_ns[number])
        lines.append(Series(held_ns, np.append(values[chosen], values[chosen[-1]])))
    return tuple(lines), valid_ns


def _retransmissions(retransmissions: Table, owin: Series, view: View, edges_ns: Array | None) -> dict[str, Series]:
    times = retransmissions.raw("time_ns")
    is_here = view.is_of(retransmissions) & view.covers(times)
    causes = retransmissions["cause"]
    found = {}
    for cause in retransmissions.words("cause"):
        at = times[is_here & (causes == cause)]
        if len(at):
            place = np.maximum(np.searchsorted(owin.times_ns, at, side="right") - 1, 0)
            maker = SeriesMaker(view.start_ns, view.end_ns, edges_ns)
            maker.add(at, owin.values[place])
            found[cause] = maker.points()
    return found


def _recoveries(recoveries: Table, view: View) -> Spans:
    starts, ends = recoveries.raw("time_first_ns"), recoveries.raw("time_last_ns")
    # a loss without an end lasts to the end of the view
    ends = np.where(ends == _NULL, view.end_ns, ends)
    is_here = view.is_of(recoveries) & (starts <= view.end_ns) & (ends >= view.start_ns)
    if is_here.sum() > RECOVERY_LIMIT:
        return timeline.union(starts[is_here], ends[is_here], view)
    return Spans(starts[is_here], ends[is_here])


# --- drawing


_LABELS = {
    "owin": "owin: sent, not acknowledged",
    "pipe": "pipe: estimated in the network, where it differs",
    "cwnd": "congestion window (cwnd), estimated",
    "rwnd": "receive window (rwnd)",
    "kernel_cwnd": "cwnd of the kernel (TCP_INFO)",
    "kernel_ssthresh": "ssthresh of the kernel (TCP_INFO)",
}


def draw(figure: Figure, window: Window) -> None:
    """Draws the commands above and the curves below, on one time axis."""
    strip, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 16))
    time = TimeAxis(window.view)
    greatest = _greatest(window)
    amounts = ByteAxis(greatest)
    for number, (start, end) in enumerate(zip(window.recoveries.starts_ns, window.recoveries.ends_ns, strict=True)):
        label = "loss recovery" if number == 0 else None
        axes.axvspan(time.at(start), time.at(end), color=style.VERMILLION, alpha=0.13, linewidth=0, label=label)
    # the data is pale and behind: it goes up and down with every command, and would hide the windows
    if len(window.owin):
        x, y = time.of(window.owin.times_ns), amounts.of(window.owin.values)
        axes.fill_between(x, y, step="post", color=style.BLUE, alpha=0.2, linewidth=0, zorder=1.6)
    _draw_lines(axes, (window.owin,), time, amounts, color=style.BLUE, linewidth=0.5, zorder=1.7, label=_LABELS["owin"])
    _draw_lines(axes, window.pipe, time, amounts, color=style.BLACK, linewidth=0.6, zorder=1.8, label=_LABELS["pipe"])
    _draw_lines(axes, window.cwnd, time, amounts, color=style.GREEN, linewidth=2.4, zorder=3, label=_LABELS["cwnd"])
    _draw_lines(
        axes, window.rwnd, time, amounts, color=style.ORANGE, linewidth=1.8, linestyle=(0, (4, 1.5)), zorder=4,
        label=_LABELS["rwnd"], path_effects=[Stroke(linewidth=3.4, foreground="white"), Normal()],
    )  # fmt: skip
    _draw_lines(
        axes, (window.kernel_cwnd,), time, amounts, color=style.PURPLE, linewidth=1.6, zorder=3.5,
        label=_LABELS["kernel_cwnd"],
    )  # fmt: skip
    _draw_lines(
        axes, (window.kernel_ssthresh,), time, amounts, color=style.GREY, linewidth=1.0, linestyle=":", zorder=3.4,
        label=_LABELS["kernel_ssthresh"],
    )  # fmt: skip
    for cause, marks in window.retransmissions.items():
        marker, label = style.RETRANSMISSION_MARKS[cause]
        axes.plot(
            time.of(marks.times_ns), amounts.of(marks.values), linestyle="none", marker=marker,
            markersize=3.5 if window.is_decimated else 6,
            color=style.VERMILLION, markeredgecolor="white", markeredgewidth=0.5, label=label, zorder=5,
        )  # fmt: skip
    time.apply(axes)
    axes.set_ylabel(f"bytes in flight, {amounts.unit}")
    axes.set_ylim(0, amounts.at(_top(window, greatest)))
    if (above := _above(window, greatest)) is not None:
        axes.text(
            0.995, 0.985, f"\N{UPWARDS ARROW} receive window {above}", transform=axes.transAxes, ha="right", va="top",
            fontsize=8, bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": style.ORANGE}, zorder=6,
        )  # fmt: skip
    timeline.draw_tasks(strip, window.tasks, time)
    style.legend(strip, axes, strip, columns=4)


def notes(window: Window) -> list[str]:
    """Lists what the curves omit."""
    found = []
    if window.is_decimated:
        found.append(f"{window.change_count:,} changes; each pixel column keeps its extremes; zoom to see every change")
    if not window.cwnd:
        found.append("the packets show no estimate of cwnd here")
    else:
        found.append(f"cwnd can be estimated for {percent(window.valid_share)} of the time shown")
    above = _above(window, _greatest(window))
    if above is not None:
        found.append(f"the receive window is above the plot: {above}")
    return found


def title(window: Window) -> str:
    """Names what the curves show."""
    sender = "initiator" if window.view.to_target else "target"
    return f"Bytes in flight from the {sender}, with times at the {sender}"


def _greatest(window: Window) -> float:
    """The most bytes of data, or of the congestion window."""
    lines = (window.owin, *window.pipe, *window.cwnd, window.kernel_cwnd)
    return max((float(line.values.max()) for line in lines if len(line)), default=1.0)


def _top(window: Window, greatest: float) -> float:
    """The top of the axis: it includes the receive window unless that would flatten the rest."""
    rwnd = max((float(line.values.max()) for line in window.rwnd), default=0.0)
    return 1.08 * (max(greatest, rwnd) if rwnd <= 3 * greatest else greatest) or 1.0


def _above(window: Window, greatest: float) -> str | None:
    """The receive window where it is above the axis; None if it never is."""
    values = np.concatenate([line.values for line in window.rwnd] or [np.empty(0)])
    above = values[values > _top(window, greatest)]
    if not len(above):
        return None
    least, most = (f"{float(each) / 1000:,.0f}" for each in (above.min(), above.max()))
    return f"{least} KB" if least == most else f"{least} to {most} KB"


def _draw_lines(
    axes: Axes, lines: Iterable[Series], time: TimeAxis, amounts: ByteAxis, label: str, **look: Any
) -> None:
    """Draws step lines of one kind as one: between them is a gap."""
    x, y = np.empty(0), np.empty(0)
    for line in lines:
        if len(line):
            # a value that is not a number ends a line
            x = np.concatenate([x, x[-1:], time.of(line.times_ns)])
            y = np.concatenate([y, np.full(min(1, len(y)), np.nan), amounts.of(line.values)])
    if len(x):
        axes.plot(x, y, drawstyle="steps-post", label=label, **look)


def in_xplot(window: Window, title: str) -> Iterator[str]:
    """The lines of a graph of the bytes in flight."""
    yield from xplot.head(title, "Outstanding Data (bytes)")
    yield from xplot.steps(window.owin, "red")
    for lines, color in ((window.pipe, "white"), (window.rwnd, "yellow"), (window.cwnd, "green")):
        for line in lines:
            yield from xplot.steps(line, color)
    for line, color in ((window.kernel_cwnd, "purple"), (window.kernel_ssthresh, "blue")):
        yield from xplot.steps(line, color)
    for marks in window.retransmissions.values():
        for time_ns, value in xplot.pairs(marks):
            yield from (f"atext {xplot.time(time_ns)} {value} red", "R")
    yield "go"


def prepare(trace: TraceTables, view: View, detail: Detail) -> Window:
    """The curves of a view."""
    return compute(trace.window, trace.retransmissions, trace.recoveries, trace.cycles, view, detail, trace.tcp_info)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="Where bytes in flight touch the dashed line, the sender is receive-window-limited. Where they follow "
    "the thick green line, it is cwnd-limited. With samples of TCP_INFO, the kernel's own cwnd is drawn, too.",
    tables=with_events("window", "retransmissions", "recoveries", "tcp_info"),
    view=view_of_connection,
    is_at_sender=True,
    xplot=in_xplot,
    pictures=whole_session("Windows"),
    place=7,
)
