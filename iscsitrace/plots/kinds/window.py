"""Bytes in flight, congestion window and receive window of one sender."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from iscsitrace.analysis.curves import window as curves
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.marks import Line
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.curves.window import Window
from iscsitrace.plots import command_strip, style, xplot
from iscsitrace.plots.kind import Kind, view_of_connection, whole_session, with_events
from iscsitrace.plots.scales import ByteAxis, TimeAxis
from iscsitrace.tables.trace import Trace
from iscsitrace.wording.amounts import percent

_CAUSES = {
    "fast": ("v", "fast retransmit"),
    "timeout": ("X", "timeout"),
    "tail_probe": ("D", "tail loss probe"),
    "unknown": ("d", "retransmission, cause unknown"),
}
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
        marker, label = _CAUSES[cause]
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
    command_strip.draw(strip, window.tasks, time)
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


def _draw_lines(axes: Axes, lines: Iterable[Line], time: TimeAxis, amounts: ByteAxis, label: str, **look: Any) -> None:
    """Draws step lines of one kind as one: between them is a gap."""
    x, y = np.empty(0), np.empty(0)
    for line in lines:
        if len(line):
            # a value that is not a number ends a line
            x = np.concatenate([x, x[-1:], time.of(line.times_ns)])
            y = np.concatenate([y, np.full(min(1, len(y)), np.nan), amounts.of(line.values)])
    if len(x):
        axes.plot(x, y, drawstyle="steps-post", label=label, **look)


def prepare(trace: Trace, view: View, detail: Detail) -> Window:
    """The curves of a view."""
    return curves.prepare(
        trace.window, trace.retransmissions, trace.recoveries, trace.cycles, view, detail, trace.tcp_info
    )


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
    xplot=xplot.of_window,
    pictures=whole_session("Windows"),
    place=7,
)
