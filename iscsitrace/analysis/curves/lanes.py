"""Sessions as lanes over time, with their events."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from iscsitrace.analysis.curves import events as curves
from iscsitrace.analysis.curves.events import Marks
from iscsitrace.analysis.curves.marks import Spans
from iscsitrace.analysis.curves.view import View, Zoom
from iscsitrace.analysis.groups import stories
from iscsitrace.analysis.groups.events import selection
from iscsitrace.analysis.groups.stories import Story
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Source, Table
from iscsitrace.wording.event_kinds import ERROR, INFO

LANES: Final = 24
NAMED: Final = 8
"""Kinds of trouble that are told in words."""


@dataclass(frozen=True)
class Lane:
    """One session, or the connections between two hosts that belong to none."""

    label: str
    start_ns: int
    end_ns: int
    marks: tuple[Marks, ...]
    outages: Spans


@dataclass(frozen=True)
class Lanes:
    """The lanes of a view, those of one story next to each other."""

    view: View
    lanes: tuple[Lane, ...]
    lane_count: int
    """Of them and those that are left out."""
    told: tuple[str, ...]
    """The worst events in words, in order of time."""


def view(source: Source, zoom: Zoom, origin_ns: int) -> View:
    """From the first packet of the sessions shown to the last; InputInvalid where there is no iSCSI."""
    rows = [row for story in _stories(source, zoom) for row in story.connections]
    if not rows:
        raise InputInvalid("nothing to draw: the capture has no iSCSI connection")
    start_ns = min(row["time_first_ns"] for row in rows) if zoom.time_from_ns is None else zoom.time_from_ns
    end_ns = max(row["time_last_ns"] for row in rows) if zoom.time_to_ns is None else zoom.time_to_ns
    numbers = tuple(row["connection"] for row in rows)
    return View(origin_ns, start_ns, max(end_ns, start_ns + 1), numbers, zoom.session)


def prepare(source: Source, shown: View) -> Lanes:
    """The lanes of a view: where there are many, those of the worst events, then the first."""
    events = source("events")
    events = events.select(
        (events.raw("time_ns") <= shown.end_ns) & (curves.ends_ns(events, shown.end_ns) >= shown.start_ns)
    )
    wanted = set(shown.connections)
    found = [
        (story, number)
        for story in stories.find(source)
        for number in (*story.numbers, *([None] if any(row["session"] is None for row in story.connections) else []))
        if any(row["session"] == number and row["connection"] in wanted for row in story.connections)
    ]
    own = _rows_by_lane(events, found)
    if len(found) > LANES:
        worst = [int(events.raw("severity")[rows].max(initial=0)) for rows in own]
        kept = sorted(sorted(range(len(found)), key=lambda place: (-worst[place], place))[:LANES])
    else:
        kept = list(range(len(found)))
    lanes = [_lane(*found[place], events.select(own[place]), shown) for place in kept]
    everything = np.sort(np.concatenate([*own, np.zeros(0, dtype=np.intp)]))
    return Lanes(shown, tuple(lanes), len(found), tuple(_told(events.select(everything), shown)))


def _stories(source: Source, zoom: Zoom) -> list[Story]:
    """The stories of the requested session, or all."""
    every = stories.find(source)
    if zoom.session is None:
        return every
    found = [story for story in every if zoom.session in story.numbers]
    if not found:
        numbers = ", ".join(str(number) for story in every for number in story.numbers)
        raise InputInvalid(f"there is no session {zoom.session}; there are {numbers or 'none'}")
    return found


def _rows_by_lane(events: Table, found: list[tuple[Story, int | None]]) -> list[Any]:
    """The rows of events of each lane: by session, or by connection for those without one."""
    lane_of_session = {number: place for place, (_, number) in enumerate(found) if number is not None}
    lane_of_connection = {
        row["connection"]: place
        for place, (story, number) in enumerate(found)
        if number is None
        for row in story.connections
        if row["session"] is None
    }
    lane = np.full(len(events), -1)
    for name, lanes in (("connection", lane_of_connection), ("session", lane_of_session)):
        if lanes:
            numbers = np.array(sorted(lanes))
            values, has = events.raw(name), known(events, name)
            index = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
            is_there = has & (numbers[index] == values)
            lane[is_there] = np.array([lanes[number] for number in numbers.tolist()])[index[is_there]]
    order = np.argsort(lane, kind="stable")
    edges = np.searchsorted(lane[order], np.arange(len(found) + 1))
    return [order[first:last] for first, last in pairwise(edges.tolist())]


def _lane(story: Story, number: int | None, events: Table, shown: View) -> Lane:
    rows = [row for row in story.connections if row["session"] == number]
    row = rows[0]
    label = (
        f"session {number}" if number is not None else f"no session: to {row['target_address']}:{row['target_port']}"
    )
    return Lane(
        label,
        min(each["time_first_ns"] for each in rows),
        max(each["time_last_ns"] for each in rows),
        curves.marks(events, shown, has_all=True),
        curves.outages(events, shown),
    )


def _told(events: Table, shown: View) -> list[str]:
    """Runs of equal events of the worst severities, one sentence each."""
    severity = events.raw("severity")
    codes = CATEGORIES["severity"]
    bad = events.select(severity > codes.index(INFO))
    if not len(bad):
        return []
    firsts, lasts, counts = selection.runs(bad)
    is_error = bad.raw("severity")[firsts] == codes.index(ERROR)
    order = np.sort(np.lexsort((firsts, ~is_error))[:NAMED])
    told = []
    for first, last, count in zip(firsts[order], lasts[order], counts[order], strict=True):
        when = (int(bad.raw("time_ns")[first]) - shown.origin_ns) / 1e9
        until = (int(bad.raw("time_ns")[last]) - shown.origin_ns) / 1e9
        times = f" ({count:,} times until {until:.2f} s)" if count > 1 else ""
        told.append(f"{when:.2f} s: {bad['text'][first]}{times}")
    if len(firsts) > NAMED:
        told.append(f"{len(firsts) - NAMED:,} more: iscsitrace events shows all")
    return told
