"""Bytes in flight, congestion window and receive window of one sender."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iscsitrace.analysis.curves import window as curves
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.marks import Line
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.curves.window import Window
from iscsitrace.plots import command_strip, style, xplot
from iscsitrace.plots.kind import Kind, view_of_connection, whole_session
from iscsitrace.plots.scales import ByteAxis, TimeAxis
from iscsitrace.tables.trace import Trace
from iscsitrace.wording.amounts import percent

_CAUSES = {
    "fast": ("v", "fast retransmit"),
    "timeout": ("X", "timeout"),
    "tail_probe": ("D", "tail loss probe"),
    "unknown": ("d", "retransmission, cause unknown"),
}


def draw(figure: Figure, window: Window) -> None:
    """Draws the commands above and the curves below, on one time axis."""
    strip, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 16))
    time = TimeAxis(window.view)
    greatest = max(
        (float(line.values.max()) for line in (window.owin, window.pipe, *window.cwnd) if len(line)), default=1.0
    )
    amounts = ByteAxis(greatest)
    for number, (start, end) in enumerate(zip(window.recoveries.starts_ns, window.recoveries.ends_ns, strict=True)):
        label = "loss recovery" if number == 0 else None
        axes.axvspan(time.at(start), time.at(end), color=style.VERMILLION, alpha=0.13, linewidth=0, label=label)
    _draw_line(axes, window.rwnd, time, amounts, color=style.ORANGE, linestyle="dashed", label="receive window (rwnd)")
    for number, line in enumerate(window.cwnd):
        label = "congestion window (cwnd), estimated" if number == 0 else None
        # a decimated line fills the space between its extremes, so it is drawn behind the others
        look = {"linewidth": 1.0, "zorder": 1.5} if window.is_decimated else {"linewidth": 3.0, "zorder": 4}
        _draw_line(axes, line, time, amounts, color=style.GREEN, alpha=0.8, label=label, **look)
    _draw_line(axes, window.owin, time, amounts, color=style.BLUE, label="owin: sent, not acknowledged")
    _draw_line(
        axes,
        window.pipe,
        time,
        amounts,
        color=style.BLACK,
        linestyle="dotted",
        linewidth=0.8,
        label="pipe: estimated in the network",
    )
    for cause, marks in window.retransmissions.items():
        marker, label = _CAUSES[cause]
        axes.plot(
            time.of(marks.times_ns), amounts.of(marks.values), linestyle="none", marker=marker,
            markersize=3.5 if window.is_decimated else 6,
            color=style.VERMILLION, markeredgecolor="white", markeredgewidth=0.5, label=label, zorder=5,
        )  # fmt: skip
    time.apply(axes)
    axes.set_ylabel(f"bytes in flight, {amounts.unit}")
    axes.set_ylim(0, amounts.at(_top(window, greatest)))
    command_strip.draw(strip, window.tasks, time)
    style.legend(strip, axes, strip, columns=4)


def notes(window: Window) -> list[str]:
    """Lists what the curves omit."""
    found = []
    if window.is_decimated:
        found.append(f"{window.change_count:,} changes; each pixel column keeps its extremes; zoom to see every change")
    if not window.cwnd:
        found.append("cwnd never limited the sender here, so there is no estimate of it")
    else:
        found.append(f"cwnd can be estimated for {percent(window.valid_share)} of the time shown")
    greatest = max(
        (float(line.values.max()) for line in (window.owin, window.pipe, *window.cwnd) if len(line)), default=1.0
    )
    if len(window.rwnd) and window.rwnd.values.min() > _top(window, greatest):
        least, most = (float(each) / 1000 for each in (window.rwnd.values.min(), window.rwnd.values.max()))
        found.append(f"the receive window is above the plot: {least:,.0f} to {most:,.0f} KB")
    return found


def title(window: Window) -> str:
    """Names what the curves show."""
    sender = "initiator" if window.view.to_target else "target"
    return f"Bytes in flight from the {sender}, with times at the {sender}"


def _top(window: Window, greatest: float) -> float:
    """The top of the axis: it includes the receive window unless that would flatten the rest."""
    rwnd = float(window.rwnd.values.max()) if len(window.rwnd) else 0.0
    return 1.08 * (max(greatest, rwnd) if rwnd <= 3 * greatest else greatest)


def _draw_line(axes: Axes, line: Line, time: TimeAxis, amounts: ByteAxis, **look: Any) -> None:
    if len(line):
        axes.plot(time.of(line.times_ns), amounts.of(line.values), drawstyle="steps-post", **look)


def prepare(trace: Trace, view: View, detail: Detail) -> Window:
    """The curves of a view."""
    return curves.prepare(trace.window, trace.retransmissions, trace.recoveries, trace.cycles, view, detail)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="Where bytes in flight touch the dashed line, the sender is receive-window-limited. Where they follow "
    "the thick green line, it is cwnd-limited.",
    tables=("window", "retransmissions", "recoveries"),
    view=view_of_connection,
    xplot=xplot.of_window,
    pictures=whole_session("Windows"),
    place=7,
)
