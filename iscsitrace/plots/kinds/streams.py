"""The connections of a session: bytes carried and bytes in flight."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iscsitrace.analysis.curves import streams as curves
from iscsitrace.analysis.curves import view
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.examples import Examples
from iscsitrace.analysis.curves.streams import Others, Streams
from iscsitrace.analysis.curves.view import View, Zoom
from iscsitrace.analysis.groups.jobs import streams as jobs
from iscsitrace.analysis.groups.mirrors import recognition
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind, with_events
from iscsitrace.plots.scales import ByteAxis, TimeAxis, duration
from iscsitrace.tables.trace import Trace
from iscsitrace.wording.amounts import count, percent

_LOOKS = (
    (style.BLUE, "solid", "o"),
    (style.ORANGE, "dashed", "s"),
    (style.GREEN, "dashdot", "^"),
    (style.VERMILLION, (0, (1, 1)), "v"),
    (style.PURPLE, (0, (5, 1)), "D"),
    (style.SKY, (0, (3, 1, 1, 1)), "P"),
    (style.BLACK, (0, (1, 3)), "X"),
    (style.GREY, (0, (8, 3)), "*"),
)
_MARKS = 9
_LOSSES = {"slow_start_exit": ("slow start exit", "v"), "timeout": ("timeout", "X")}
_CAUSES = {
    "slow_start_exit": "loss in slow start",
    "timeout": "timeout",
    "low_equilibrium": "losses",
    "window": "receive window",
}


def draw(figure: Figure, streams: Streams) -> None:
    """Draws both panels on one time axis."""
    passed, outstanding = figure.subplots(1, 2)
    time = TimeAxis(streams.view)
    most = max(float(each.passed.values.max()) for each in streams.streams)
    places = ByteAxis(max(most, float(streams.others.most[-1])) if streams.others is not None else most)
    amounts = ByteAxis(
        max((float(s.outstanding.values.max()) for s in streams.streams if len(s.outstanding)), default=1.0)
    )
    for stream, (color, dashes, marker) in zip(streams.streams, _LOOKS, strict=False):
        label = f"connection {stream.connection}"
        if stream.cause:
            label += f" (slow: {_CAUSES[stream.cause]})"
        for axes, line, axis in ((passed, stream.passed, places), (outstanding, stream.outstanding, amounts)):
            if len(line):
                axes.plot(
                    time.of(line.times_ns), axis.of(line.values), drawstyle="steps-post", color=color, linestyle=dashes,
                    marker=marker, markersize=4, markevery=max(1, len(line) // _MARKS), label=label,
                )  # fmt: skip
        for axes in (passed, outstanding):
            if stream.finish_ns is not None:
                axes.axvline(time.at(stream.finish_ns), color=color, linestyle=dashes, linewidth=0.8, alpha=0.7)
        for kind, losses in stream.losses.items():
            _, mark = _LOSSES[kind]
            outstanding.plot(
                time.of(losses.times_ns), amounts.of(losses.values), linestyle="none", marker=mark, markersize=9,
                markerfacecolor="white", markeredgecolor=color, markeredgewidth=1.6,
            )  # fmt: skip
    if streams.others is not None:
        _draw_others(passed, streams.others, time, places)
    passed.set_ylabel(f"bytes carried since the start of the view, {places.unit}")
    outstanding.set_ylabel(f"bytes in flight (owin), {amounts.unit}")
    if not any(len(stream.outstanding) for stream in streams.streams):
        style.write_text(outstanding, "bytes in flight unknown")
    for axes in (passed, outstanding):
        time.apply(axes)
        axes.set_ylim(bottom=0)
    style.legend(passed, passed, columns=2)
    if any(stream.losses for stream in streams.streams):
        _legend_of_losses(outstanding, streams)


def _draw_others(axes: Axes, others: Others, time: TimeAxis, places: ByteAxis) -> None:
    """Draws all other connections as one band, from the least bytes to the most, and their median."""
    times = time.of(others.times_ns)
    axes.fill_between(
        times, places.of(others.least), places.of(others.most), color=style.GREY, alpha=0.25, linewidth=0, zorder=0
    )
    label = f"{count(others.count, 'other')}: range and median"
    axes.plot(times, places.of(others.middle), color=style.GREY, linewidth=2.5, zorder=0, label=label)


def _legend_of_losses(axes: Axes, streams: Streams) -> None:
    """Adds a legend of the marks alone above the right panel; their colours are those of the streams."""
    for kind in dict.fromkeys(kind for stream in streams.streams for kind in stream.losses):
        name, mark = _LOSSES[kind]
        axes.plot(
            [], [], linestyle="none", marker=mark, markersize=9, markerfacecolor="white", markeredgecolor=style.BLACK,
            markeredgewidth=1.6, label=f"{name}, in the stream's colour",
        )  # fmt: skip
    handles, labels = axes.get_legend_handles_labels()
    kept = {label: handle for handle, label in zip(handles, labels, strict=True) if label.endswith("colour")}
    axes.legend(
        list(kept.values()), list(kept), loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, borderaxespad=0.3
    )


def notes(streams: Streams) -> list[str]:
    """Lists what the panels omit, and how the streams compare."""
    found = []
    shown_count = len(streams.streams)
    if (idle_count := streams.connection_count - streams.carrying_count) > 0:
        found.append(f"{count(idle_count, 'connection')} carried no data in this direction")
    if shown_count < streams.carrying_count:
        which = "those that carried data while the busiest did"
        if streams.others is not None:
            which = (
                f"of the {streams.at_once_count:,} that carried data while the busiest did, those that lost the most "
                "time, the worst first"
            )
        found.append(f"{shown_count} of {streams.carrying_count:,} connections with data are drawn: {which}")
    if streams.is_decimated:
        found.append("each pixel column keeps its extremes")
    if len(streams.streams) > 1:
        by_bytes = sorted(streams.streams, key=lambda each: each.passed_bytes, reverse=True)
        most, least = by_bytes[0], by_bytes[-1]
        times = most.passed_bytes / least.passed_bytes
        found.append(
            f"connection {most.connection} carried {times:.2f} times the bytes of connection {least.connection}"
        )
    job = streams.job
    if job is not None:
        found.append(
            f"vertical lines mark the end of a stream: the last one ended {duration(job.first_to_last_ns)} after the "
            f"first and ran alone for {percent(job.alone_share)} of the job"
        )
    return found


def title(streams: Streams) -> str:
    """Names what the panels show."""
    names = "Connections compared" if len(streams.streams) > 1 else f"Connection {streams.streams[0].connection}"
    compared = f"{names}, data to the {'target' if streams.view.to_target else 'initiator'}"
    if streams.job is None:
        return compared
    return f"{compared}: {len(streams.job.streams)} streams of one job, Jain's fairness index {streams.job.jain:.3f}"


def prepare(trace: Trace, seen: View, detail: Detail) -> Streams:
    """The streams of a view; of ``detail`` only the number of connections has an effect."""
    of_trace = jobs.find(trace.table, recognition.find(trace.table))
    fine = Detail(limit=curves.LIMIT, top=detail.top)
    return curves.prepare(trace.segments, trace.window, seen, fine, of_trace, trace.budget)


def _view(trace: Trace, zoom: Zoom, origin_ns: int) -> View:
    return view.of_streams(trace.connections, trace.cycles, zoom, origin_ns)


def _pictures(examples: Examples) -> Iterator[tuple[str, Zoom]]:
    if examples.job is not None:
        yield "Streams of the job", examples.job
    elif examples.connection_count > 1:
        yield "Connections", Zoom(session=examples.session)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="Connections that worked at the same time: bytes carried on the left, bytes in flight on the right.",
    tables=with_events("segments", "window", "budget", "recoveries", "senders", "retransmissions"),
    view=_view,
    pictures=_pictures,
    has_top=True,
    place=8,
)
