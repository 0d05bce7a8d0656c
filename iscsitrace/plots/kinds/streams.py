"""The connections of a session: bytes carried and bytes in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import busy
from iscsitrace.measure.budget import PARTS
from iscsitrace.plots import style
from iscsitrace.plots.kind import Examples, Kind, view_of_streams, with_events
from iscsitrace.plots.marks import Array, Detail, Series, SeriesMaker, chunks, even_edges
from iscsitrace.plots.style import ByteAxis, TimeAxis, duration
from iscsitrace.plots.view import View, Zoom
from iscsitrace.relate.jobs import streams as jobs
from iscsitrace.relate.jobs.streams import Job, Stream
from iscsitrace.relate.mirrors import recognition
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import distinct, first_rows, order_of, places_of, sums_of
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording.amounts import count, percent

LIMIT = 5000
"""Packets of a connection up to which all are drawn."""
_STEPS = 200
"""Instants of the curves of connections that are not drawn each for itself."""
_EACH = 3
"""Streams up to which every change of the bytes in flight is drawn: more such curves hide each other."""
_MEAN_STEPS = 60
"""Steps of the mean that is drawn of more."""
_TRANSFER = PARTS.index("transfer")
_NEW = tuple(CATEGORIES["segment_class"].index(word) for word in ("new", "reordered", "retransmission"))
_RETRANSMISSION = _NEW[-1]


@dataclass(frozen=True)
class StreamCurve:
    """One connection: bytes carried since the start of the view, and bytes in flight."""

    connection: int
    passed: Series
    outstanding: Series
    passed_bytes: int
    finish_ns: int | None = None
    """When it finished its part of a job; None where it has none, or finished outside of the view."""
    cause: str | None = None
    """Cause for being slower than other streams of the job."""
    losses: dict[str, Series] = field(default_factory=dict)
    """Losses that ended slow start or were found by a timeout: when, and owin at that time."""


@dataclass(frozen=True)
class Others:
    """Connections beside those that are drawn each for itself: bytes carried since the start of the view."""

    connections: tuple[int, ...]
    passed_bytes: tuple[int, ...]
    """What each carried in all."""
    times_ns: Array
    least: Array
    middle: Array
    """The median."""
    most: Array


@dataclass(frozen=True)
class Streams:
    """The streams of a view, the busiest first; of many those that lost most time first, while the busiest worked."""

    view: View
    streams: tuple[StreamCurve, ...]
    others: Others | None
    """Those that carried payload in the time of the busiest and are not among ``streams``."""
    connection_count: int
    carrying_count: int
    """Connections that carried payload in the direction of the view."""
    at_once_count: int
    """Of these, those that carried some between the first and the last payload of the busiest."""
    is_decimated: bool
    job: Job | None = None
    """The job of most of them."""
    step_ns: int | None = None
    """The steps of which the bytes in flight are the mean; None where every change is drawn."""

    @property
    def ranked(self) -> list[tuple[int, int]]:
        """Every connection at work in the time of the busiest, and the bytes that it carried: the most first."""
        every = {each.connection: each.passed_bytes for each in self.streams}
        if self.others is not None:
            every |= zip(self.others.connections, self.others.passed_bytes, strict=True)
        return sorted(every.items(), key=lambda each: -each[1])


def compute(
    segments: Table,
    window: Table,
    view: View,
    detail: Detail | None = None,
    jobs: Sequence[Job] = (),
    budget: Table | None = None,
) -> Streams:
    """The streams of the view's direction; InputInvalid where none carried payload.

    ``budget`` shows which lost most time; without it the busiest of many are drawn.
    """
    detail = detail or Detail(limit=LIMIT)
    carried = _payload_by_connection(segments, view)
    if not carried:
        raise InputInvalid("nothing to draw: no payload passed the tap in that direction in the view")
    at_once = _at_once(carried)
    others = None
    if len(carried) > detail.top:
        lost_ns = _lost_ns(budget, view) if budget is not None else {}
        worst = sorted(at_once, key=lambda number: lost_ns.get(number, 0), reverse=True)
        shown, rest = worst[: detail.top], worst[detail.top :]
        first_ns, last_ns = (min(carried[n].first_ns for n in shown), max(carried[n].last_ns for n in shown))
        view = replace(view, start_ns=first_ns, end_ns=max(last_ns, first_ns + 1))
        carried |= {n: each for n, each in _payload_by_connection(segments, view).items() if n in shown}
        others = _others(segments, view, rest) if rest else None
    else:
        shown = sorted(carried, key=lambda number: carried[number].bytes, reverse=True)
    edges = detail.edges(max(carried[number].packet_count for number in shown), view.start_ns, view.end_ns)
    passed = _passed(segments, view, shown, edges)
    mean_edges = even_edges(view.start_ns, view.end_ns, _MEAN_STEPS) if len(shown) > _EACH else None
    job = _job(jobs, view, shown)
    of_job = {stream.run.connection: stream for stream in job.streams} if job else {}
    streams = []
    for number in shown:
        outstanding = _outstanding(window, view, number, edges if mean_edges is None else None)
        if mean_edges is not None:
            outstanding = _mean(outstanding, mean_edges)
        known = _of_job(of_job[number], view, outstanding) if number in of_job else {}
        streams.append(StreamCurve(number, passed[number], outstanding, carried[number].bytes, **known))
    return Streams(
        view=view,
        streams=tuple(streams),
        others=others,
        connection_count=len(view.connections),
        carrying_count=len(carried),
        at_once_count=len(at_once),
        is_decimated=edges is not None,
        job=job,
        step_ns=None if mean_edges is None else int(mean_edges[1] - mean_edges[0]),
    )


def _job(jobs: Sequence[Job], view: View, shown: list[int]) -> Job | None:
    """The job in the view that has most of these connections as streams."""

    def members(job: Job) -> int:
        seen = [run for run in job.runs if run.first_ns <= view.end_ns and run.last_ns >= view.start_ns]
        return sum(run.connection in shown and run.to_target == view.to_target for run in seen)

    most = max(jobs, key=members, default=None)
    return most if most is not None and members(most) > 1 else None


def _of_job(stream: Stream, view: View, outstanding: Series) -> dict[str, Any]:
    """Finish, cause and losses of a stream in the view."""
    losses, found = stream.evidence.losses, {}
    for kind in ("slow_start_exit", "timeout"):
        times = np.array([loss.time_ns for loss in losses if loss.kind == kind], dtype=np.int64)
        at = times[view.covers(times)]
        if len(at) and len(outstanding):
            place = np.maximum(np.searchsorted(outstanding.times_ns, at, side="right") - 1, 0)
            found[kind] = Series(at, outstanding.values[place])
    last_ns = stream.run.last_ns
    return {
        "finish_ns": last_ns if view.start_ns <= last_ns <= view.end_ns else None,
        "cause": stream.cause.name if stream.cause else None,
        "losses": found,
    }


def _is_new(segments: Table, rows: slice, view: View) -> Array:
    found: Array = (segments.raw("to_target")[rows] == view.to_target) & np.isin(
        segments.raw("segment_class")[rows], _NEW
    )
    return found & (segments.raw("payload_bytes")[rows] > 0) & view.covers(segments.raw("time_ns")[rows])


@dataclass(frozen=True)
class _Carried:
    """The payload of one connection in the view."""

    bytes: int
    packet_count: int
    first_ns: int
    last_ns: int

    def with_more(self, later: _Carried) -> _Carried:
        """This and what it carried later."""
        first_ns, last_ns = min(self.first_ns, later.first_ns), max(self.last_ns, later.last_ns)
        return _Carried(self.bytes + later.bytes, self.packet_count + later.packet_count, first_ns, last_ns)


def _payload_by_connection(segments: Table, view: View) -> dict[int, _Carried]:
    """What each connection with payload carried."""
    found: dict[int, _Carried] = {}
    for rows in chunks(len(segments)):
        is_wanted, connections = _is_new(segments, rows, view), segments.raw("connection")[rows]
        chosen = np.flatnonzero(is_wanted & np.isin(connections, view.connections))
        chosen = chosen[order_of(connections[chosen])]
        starts = first_rows(connections[chosen])
        if not len(starts):
            continue
        times = segments.raw("time_ns")[rows][chosen]
        lengths = segments.raw("payload_bytes")[rows][chosen].astype(np.int64)
        columns = (
            connections[chosen][starts], np.add.reduceat(lengths, starts), np.diff(starts, append=len(chosen)),
            np.minimum.reduceat(times, starts), np.maximum.reduceat(times, starts),
        )  # fmt: skip
        for number, *each in zip(*(column.tolist() for column in columns), strict=True):
            own = _Carried(*each)
            found[number] = found[number].with_more(own) if number in found else own
    return found


def _lost_ns(budget: Table, view: View) -> dict[int, int]:
    """Busy time of each connection in the view that is not data transfer."""
    rows = busy.rows_of(budget)
    rows = rows.select(known(rows, "connection") & (rows.raw("part") != _TRANSFER))
    firsts, lasts = (rows.raw(name).clip(view.start_ns, view.end_ns) for name in ("time_first_ns", "time_last_ns"))
    numbers, place = distinct(rows.raw("connection"))
    sums = sums_of(place, lasts - firsts, len(numbers))
    return dict(zip(numbers.tolist(), sums.tolist(), strict=True))


def _others(segments: Table, view: View, numbers: Sequence[int]) -> Others:
    """What these connections carried, together: new bytes up to each of some instants."""
    edges_ns = even_edges(view.start_ns, view.end_ns, _STEPS)
    each = np.array(sorted(numbers))
    carried = np.zeros((len(each), len(edges_ns)), dtype=np.int64)
    for rows in chunks(len(segments)):
        place = places_of(segments.raw("connection")[rows], each)
        is_new = segments.raw("segment_class")[rows] != _RETRANSMISSION
        chosen = np.flatnonzero(_is_new(segments, rows, view) & is_new & (place >= 0))
        step = np.searchsorted(edges_ns, segments.raw("time_ns")[rows][chosen])
        np.add.at(carried, (place[chosen], step), segments.raw("payload_bytes")[rows][chosen].astype(np.int64))
    carried = carried.cumsum(axis=1)
    least, most = carried.min(axis=0), carried.max(axis=0)
    totals = tuple(carried[:, -1].tolist())
    return Others(tuple(each.tolist()), totals, edges_ns, least, np.median(carried, axis=0), most)


def _at_once(carried: dict[int, _Carried]) -> list[int]:
    """The connections that carried payload in the time of the busiest, the busiest first."""
    ranked = sorted(carried, key=lambda number: carried[number].bytes, reverse=True)
    busiest = carried[ranked[0]]
    return [
        number
        for number in ranked
        if carried[number].first_ns <= busiest.last_ns and carried[number].last_ns >= busiest.first_ns
    ]


def _passed(segments: Table, view: View, shown: list[int], edges_ns: Array | None) -> dict[int, Series]:
    """Per connection the furthest stream offset, less the offset at the start of the view."""
    makers = {number: SeriesMaker(view.start_ns, view.end_ns, edges_ns) for number in shown}
    reached: dict[int, tuple[int, int]] = {}
    for rows in chunks(len(segments)):
        is_wanted, connections = _is_new(segments, rows, view), segments.raw("connection")[rows]
        for number, maker in makers.items():
            chosen = is_wanted & (connections == number)
            if not chosen.any():
                continue
            starts = segments.raw("stream_offset_bytes")[rows][chosen]
            ends = starts + segments.raw("payload_bytes")[rows][chosen]
            first, furthest = reached.get(number, (int(starts.min()), 0))
            ends = np.maximum(np.maximum.accumulate(ends), furthest)
            reached[number] = first, int(ends[-1])
            maker.add(segments.raw("time_ns")[rows][chosen], ends - first)
    return {number: maker.line() for number, maker in makers.items()}


def _outstanding(window: Table, view: View, number: int, edges_ns: Array | None) -> Series:
    chosen = (window.raw("connection") == number) & (window.raw("to_target") == view.to_target)
    maker = SeriesMaker(view.start_ns, view.end_ns, edges_ns)
    maker.add(window.raw("time_ns")[chosen], window.raw("owin_bytes")[chosen])
    return maker.line()


def _mean(line: Series, edges_ns: Array) -> Series:
    """The mean of a step line over time in each step, from the first that it covers."""
    if len(line) < 2:
        return line
    # a float cannot hold nanoseconds since 1970 exactly
    at, edges = line.times_ns - edges_ns[0], edges_ns - edges_ns[0]
    until = np.concatenate([[0.0], np.cumsum(line.values[:-1] * np.diff(at).astype(np.float64))])
    edges = edges[edges >= at[0]]
    if len(edges) < 2:
        return line
    means = np.diff(np.interp(edges, at, until)) / np.diff(edges)
    return Series(edges + edges_ns[0], np.append(means, means[-1]).round().astype(np.int64))


# --- drawing


_Look = tuple[str, Any, str]
"""Colour, dashes and marker."""
_LOOKS: tuple[_Look, ...] = (
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
    """Draws both panels; of many connections the right one ranks all of them."""
    passed, beside = figure.subplots(1, 2)
    time = TimeAxis(streams.view)
    places = ByteAxis(max(streams.ranked[0][1], *(float(each.passed.values.max()) for each in streams.streams)))
    for stream, look in zip(streams.streams, _LOOKS, strict=False):
        label = f"connection {stream.connection}"
        if stream.cause:
            label += f" (slow: {_CAUSES[stream.cause]})"
        _draw_line(passed, stream, stream.passed, time, places, look, label)
    if streams.others is None:
        _draw_outstanding(beside, streams, time)
    else:
        _draw_others(passed, streams.others, time, places)
        _draw_ranking(beside, streams, places)
    passed.set_ylabel(f"bytes carried since the start of the view, {places.unit}")
    time.apply(passed)
    passed.set_ylim(bottom=0)
    style.legend(passed, passed, columns=2)


def _draw_line(
    axes: Axes, stream: StreamCurve, line: Series, time: TimeAxis, amounts: ByteAxis, look: _Look, label: str
) -> None:
    """Draws a line of a stream, and where the stream finished."""
    color, dashes, marker = look
    if len(line):
        axes.plot(
            time.of(line.times_ns), amounts.of(line.values), drawstyle="steps-post", color=color, linestyle=dashes,
            marker=marker, markersize=4, markevery=max(1, len(line) // _MARKS), label=label,
        )  # fmt: skip
    if stream.finish_ns is not None:
        axes.axvline(time.at(stream.finish_ns), color=color, linestyle=dashes, linewidth=0.8, alpha=0.7)


def _draw_outstanding(axes: Axes, streams: Streams, time: TimeAxis) -> None:
    """Draws the bytes in flight of each stream, with the losses that made it slow."""
    known = [each for each in streams.streams if len(each.outstanding)]
    amounts = ByteAxis(max((float(each.outstanding.values.max()) for each in known), default=1.0))
    for stream, look in zip(streams.streams, _LOOKS, strict=False):
        _draw_line(axes, stream, stream.outstanding, time, amounts, look, f"connection {stream.connection}")
        for kind, losses in stream.losses.items():
            _, mark = _LOSSES[kind]
            axes.plot(
                time.of(losses.times_ns), amounts.of(losses.values), linestyle="none", marker=mark, markersize=9,
                markerfacecolor="white", markeredgecolor=look[0], markeredgewidth=1.6,
            )  # fmt: skip
    axes.set_ylabel(f"bytes in flight (owin), {amounts.unit}{'' if streams.step_ns is None else ', mean'}")
    if not known:
        style.write_text(axes, "bytes in flight unknown")
    time.apply(axes)
    axes.set_ylim(bottom=0)
    if any(stream.losses for stream in streams.streams):
        _legend_of_losses(axes, streams)


def _draw_ranking(axes: Axes, streams: Streams, places: ByteAxis) -> None:
    """Draws a bar for each connection, the most bytes first; those with a line on the left have its colour and mark."""
    places_of = {connection: place for place, (connection, _) in enumerate(streams.ranked)}
    amounts = places.of(np.array([amount for _, amount in streams.ranked]))
    # a patch for each of ten thousand would take seconds
    axes.stairs(amounts, np.arange(len(amounts) + 1) - 0.5, fill=True, color=style.GREY, alpha=0.25, linewidth=0)
    for stream, (color, _, marker) in zip(streams.streams, _LOOKS, strict=False):
        place = places_of[stream.connection]
        axes.bar(place, amounts[place], width=1, color=color)
        axes.plot(
            place, amounts[place], linestyle="none", marker=marker, markersize=7, color=color, markeredgecolor="white",
            markeredgewidth=0.6, clip_on=False, zorder=3,
        )  # fmt: skip
    axes.set_xticks([])
    axes.set_xlim(-0.5, len(amounts) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"{len(amounts):,} connections, the most bytes first")
    axes.set_ylabel(f"bytes carried in the view, {places.unit}")
    axes.grid(visible=False, axis="x")


def _draw_others(axes: Axes, others: Others, time: TimeAxis, places: ByteAxis) -> None:
    """Draws all other connections as one band, from the least bytes to the most, and their median."""
    times = time.of(others.times_ns)
    axes.fill_between(
        times, places.of(others.least), places.of(others.most), color=style.GREY, alpha=0.25, linewidth=0, zorder=0
    )
    label = f"{count(len(others.connections), 'other')}: range and median"
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
    style.fitted_legend(
        axes, list(kept.values()), list(kept), 1, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.3
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
    if streams.step_ns is not None and streams.others is None:
        found.append(f"bytes in flight are the mean of steps of {duration(streams.step_ns)}")
    (most, most_bytes), (least, least_bytes) = streams.ranked[0], streams.ranked[-1]
    if most != least and least_bytes:
        found.append(f"connection {most} carried {most_bytes / least_bytes:.2f} times the bytes of connection {least}")
    job = streams.job
    if job is not None:
        found.append(
            "vertical lines mark the end of a connection's work: the last one finished "
            f"{duration(job.first_to_last_ns)} after the first and ran alone for {percent(job.alone_share)} of the time"
        )
    return found


def title(streams: Streams) -> str:
    """Names what the panels show."""
    names = "Connections compared" if len(streams.streams) > 1 else f"Connection {streams.streams[0].connection}"
    compared = f"{names}, data to the {'target' if streams.view.to_target else 'initiator'}"
    if streams.job is None:
        return compared
    return f"{compared}: {len(streams.job.streams)} in parallel, Jain's fairness index {streams.job.jain:.3f}"


def prepare(trace: TraceTables, seen: View, detail: Detail) -> Streams:
    """The streams of a view; of ``detail`` only the number of connections has an effect."""
    of_trace = jobs.find(trace.table, recognition.find(trace.table))
    fine = Detail(limit=LIMIT, top=detail.top)
    return compute(trace.segments, trace.window, seen, fine, of_trace, trace.budget)


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
    view=view_of_streams,
    pictures=_pictures,
    has_top=True,
    place=8,
)
