"""Connections side by side: progress of each stream, and its bytes in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from iscsitrace.analysis.curves.decimation import Detail, LineMaker, chunks
from iscsitrace.analysis.curves.marks import Array, Line
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.analysis.groups.jobs.streams import Stream as StreamOfJob
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table

STREAM_LIMIT = 8
LEAST_COUNT = 3
"""Of more connections than this limit, so many of those shown have the fewest bytes, and the others the most."""


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
class Streams:
    """The streams of a view, the busiest first; of many those that worked at the same time, while they did."""

    view: View
    streams: tuple[Stream, ...]
    connection_count: int
    carrying_count: int
    """Connections that carried payload in the direction of the view."""
    at_once_count: int
    """Of these, those that carried some between the first and the last payload of the busiest."""
    is_decimated: bool
    job: Job | None = None
    """The job of most of them."""


def prepare(
    segments: Table, window: Table, view: View, detail: Detail | None = None, jobs: Sequence[Job] = ()
) -> Streams:
    """The streams of the view's direction; InputInvalid where none carried payload."""
    detail = detail or Detail(limit=5000)
    carried = _payload_by_connection(segments, view)
    if not carried:
        raise InputInvalid("nothing to draw: no payload passed the tap in that direction in the view")
    at_once = _at_once(carried)
    shown = at_once
    if len(carried) > STREAM_LIMIT:
        shown = shown if len(shown) <= STREAM_LIMIT else shown[: STREAM_LIMIT - LEAST_COUNT] + shown[-LEAST_COUNT:]
        first_ns, last_ns = (min(carried[n].first_ns for n in shown), max(carried[n].last_ns for n in shown))
        view = replace(view, start_ns=first_ns, end_ns=max(last_ns, first_ns + 1))
        carried |= {n: each for n, each in _payload_by_connection(segments, view).items() if n in shown}
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
    new = [CATEGORIES["segment_class"].index(word) for word in ("new", "reordered", "retransmission")]
    found: Array = (segments.raw("to_target")[rows] == view.to_target) & np.isin(
        segments.raw("segment_class")[rows], new
    )
    return found & (segments.raw("payload_bytes")[rows] > 0) & view.covers(segments.raw("time_ns")[rows])


@dataclass(frozen=True)
class _Carried:
    """The payload of one connection in the view."""

    bytes: int
    packet_count: int
    first_ns: int
    last_ns: int


def _payload_by_connection(segments: Table, view: View) -> dict[int, _Carried]:
    """What each connection with payload carried."""
    found: dict[int, _Carried] = {}
    for rows in chunks(len(segments)):
        is_wanted, connections = _is_new(segments, rows, view), segments.raw("connection")[rows]
        for number in np.intersect1d(connections[is_wanted], view.connections).tolist():
            chosen = is_wanted & (connections == number)
            times = segments.raw("time_ns")[rows][chosen]
            length = int(segments.raw("payload_bytes")[rows][chosen].sum())
            each = _Carried(length, len(times), int(times.min()), int(times.max()))
            before = found.get(number, each)
            found[number] = each if before is each else _Carried(
                before.bytes + length, before.packet_count + len(times),
                min(before.first_ns, each.first_ns), max(before.last_ns, each.last_ns),
            )  # fmt: skip
    return found


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
