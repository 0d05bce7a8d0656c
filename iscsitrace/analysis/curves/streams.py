"""Connections side by side: progress of each stream, and its bytes in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from iscsitrace.analysis.curves.decimation import Detail, LineMaker, chunks, even_edges
from iscsitrace.analysis.curves.marks import Array, Line
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.analysis.groups.jobs.streams import Stream as StreamOfJob
from iscsitrace.analysis.measures import busy
from iscsitrace.analysis.measures.budget import PARTS
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.numbers import distinct, first_rows, order_of, places_of, sums_of
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table

LIMIT = 5000
"""Packets of a connection up to which all are drawn."""
_STEPS = 200
"""Instants of the curves of connections that are not drawn each for itself."""
_TRANSFER = PARTS.index("transfer")
_NEW = tuple(CATEGORIES["segment_class"].index(word) for word in ("new", "reordered", "retransmission"))
_RETRANSMISSION = _NEW[-1]


@dataclass(frozen=True)
class Stream:
    """One connection: bytes carried since the start of the view, and bytes in flight."""

    connection: int
    passed: Line
    outstanding: Line
    passed_bytes: int
    finish_ns: int | None = None
    """When it finished its part of a job; None where it has none, or finished outside of the view."""
    cause: str | None = None
    """Cause for being slower than other streams of the job."""
    losses: dict[str, Line] = field(default_factory=dict)
    """Losses that ended slow start or were found by a timeout: when, and owin at that time."""


@dataclass(frozen=True)
class Others:
    """Connections beside those that are drawn each for itself: bytes carried since the start of the view."""

    count: int
    times_ns: Array
    least: Array
    middle: Array
    """The median."""
    most: Array


@dataclass(frozen=True)
class Streams:
    """The streams of a view, the busiest first; of many those that lost most time first, while the busiest worked."""

    view: View
    streams: tuple[Stream, ...]
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


def prepare(
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
    job = _job(jobs, view, shown)
    of_job = {stream.run.connection: stream for stream in job.streams} if job else {}
    streams = []
    for number in shown:
        outstanding = _outstanding(window, view, number, edges)
        known = _of_job(of_job[number], view, outstanding) if number in of_job else {}
        streams.append(Stream(number, passed[number], outstanding, carried[number].bytes, **known))
    return Streams(
        view=view,
        streams=tuple(streams),
        others=others,
        connection_count=len(view.connections),
        carrying_count=len(carried),
        at_once_count=len(at_once),
        is_decimated=edges is not None,
        job=job,
    )


def _job(jobs: Sequence[Job], view: View, shown: list[int]) -> Job | None:
    """The job in the view that has most of these connections as streams."""

    def members(job: Job) -> int:
        seen = [run for run in job.runs if run.first_ns <= view.end_ns and run.last_ns >= view.start_ns]
        return sum(run.connection in shown and run.to_target == view.to_target for run in seen)

    most = max(jobs, key=members, default=None)
    return most if most is not None and members(most) > 1 else None


def _of_job(stream: StreamOfJob, view: View, outstanding: Line) -> dict[str, Any]:
    """Finish, cause and losses of a stream in the view."""
    losses, found = stream.evidence.losses, {}
    for kind in ("slow_start_exit", "timeout"):
        times = np.array([loss.time_ns for loss in losses if loss.kind == kind], dtype=np.int64)
        at = times[view.covers(times)]
        if len(at) and len(outstanding):
            place = np.maximum(np.searchsorted(outstanding.times_ns, at, side="right") - 1, 0)
            found[kind] = Line(at, outstanding.values[place])
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
    return Others(len(each), edges_ns, least, np.median(carried, axis=0), most)


def _at_once(carried: dict[int, _Carried]) -> list[int]:
    """The connections that carried payload in the time of the busiest, the busiest first."""
    ranked = sorted(carried, key=lambda number: carried[number].bytes, reverse=True)
    busiest = carried[ranked[0]]
    return [
        number
        for number in ranked
        if carried[number].first_ns <= busiest.last_ns and carried[number].last_ns >= busiest.first_ns
    ]


def _passed(segments: Table, view: View, shown: list[int], edges_ns: Array | None) -> dict[int, Line]:
    """Per connection the furthest stream offset, less the offset at the start of the view."""
    makers = {number: LineMaker(view.start_ns, view.end_ns, edges_ns) for number in shown}
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


def _outstanding(window: Table, view: View, number: int, edges_ns: Array | None) -> Line:
    chosen = (window.raw("connection") == number) & (window.raw("to_target") == view.to_target)
    maker = LineMaker(view.start_ns, view.end_ns, edges_ns)
    maker.add(window.raw("time_ns")[chosen], window.raw("owin_bytes")[chosen])
    return maker.line()
