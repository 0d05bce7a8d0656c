"""Sessions as lanes: outages, lost connections, logins, aborts and errors over time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from iscsitrace.errors import InputInvalid
from iscsitrace.events import derived, selection
from iscsitrace.plots import style, timeline
from iscsitrace.plots.kind import Kind, whole_session, with_events
from iscsitrace.plots.marks import Detail, Spans
from iscsitrace.plots.style import TimeAxis
from iscsitrace.plots.view import View, Zoom
from iscsitrace.relate import stories
from iscsitrace.relate.stories import Story
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Source, Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import cells
from iscsitrace.wording.event_kinds import ERROR, INFO

LANES: Final = 24
NAMED: Final = 8
"""Kinds of trouble that are told in words."""


@dataclass(frozen=True)
class Lane:
    """One session, or the connections between two hosts that belong to none."""

    label: str
    """Its number, and the address of the initiator."""
    host: str
    """The name of the initiator; without a session, the portal that it tried to reach."""
    start_ns: int
    end_ns: int
    marks: tuple[timeline.Marks, ...]
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


def view_of(source: Source, zoom: Zoom, origin_ns: int) -> View:
    """From the first packet of the sessions shown to the last; InputInvalid where there is no iSCSI."""
    rows = [row for story in _stories(source, zoom) for row in story.connections]
    if not rows:
        raise InputInvalid("nothing to draw: the capture has no iSCSI connection")
    start_ns = min(row["time_first_ns"] for row in rows) if zoom.time_from_ns is None else zoom.time_from_ns
    end_ns = max(row["time_last_ns"] for row in rows) if zoom.time_to_ns is None else zoom.time_to_ns
    numbers = tuple(row["connection"] for row in rows)
    return View(origin_ns, start_ns, max(end_ns, start_ns + 1), numbers, zoom.session)


def compute(source: Source, shown: View) -> Lanes:
    """The lanes of a view: where there are many, those of the worst events, then the first."""
    events = source("events")
    events = events.select(
        (events.raw("time_ns") <= shown.end_ns) & (selection.ends_ns(events, shown.end_ns) >= shown.start_ns)
    )
    wanted = set(shown.connections)
    found = []
    for story in stories.find(source):
        there = {row["session"] for row in story.connections if row["connection"] in wanted}
        found += [(story, number) for number in (*story.numbers, None) if number in there]
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
    names = {each["session"]: each["initiator_name"] for each in story.sessions}
    portal = f"to {row['target_address']}:{row['target_port']}"
    return Lane(
        f"{'no session' if number is None else f'session {number}'}, {row['initiator_address']}",
        portal if number is None else names.get(number) or portal,
        min(each["time_first_ns"] for each in rows),
        max(each["time_last_ns"] for each in rows),
        timeline.marks(events, shown, has_all=True),
        timeline.outages(events, shown),
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


# --- drawing


_LANE_IN = 0.5
_KEY_COLUMNS = 7
_LAYER = 0.24
"""Distance of the marks of TCP, iSCSI and SCSI in a lane."""
_ROOM_IN = 1.6
"""Height of the plot besides its lanes: title, legend, axis and facts."""
_LABEL_PER_INCH = 4.5
"""Characters of a label for each inch of the width of the plot."""


def draw(figure: Figure, lanes: Lanes) -> None:
    """Draws a row for each session, the first on top."""
    axes = figure.subplots()
    time = TimeAxis(lanes.view)
    time.apply(axes)
    for row, lane in enumerate(lanes.lanes):
        start, end = time.at(lane.start_ns), time.at(lane.end_ns)
        axes.barh(row, end - start, left=start, height=0.8, color=style.PALE, zorder=1)
        starts, ends = time.of(lane.outages.starts_ns), time.of(lane.outages.ends_ns)
        axes.barh(
            [row] * len(starts), ends - starts, left=starts, height=0.8, color=style.VERMILLION, alpha=0.3,
            linewidth=0, zorder=1.5,
        )  # fmt: skip
        places = [row + _LAYER * (timeline.LAYERS.index(marks.sort.layer) - 1) for marks in lane.marks]
        timeline.draw_marks(axes, lane.marks, lanes.view, places)
    limit = int(_LABEL_PER_INCH * figure.get_figwidth())
    axes.set_ylim(len(lanes.lanes) - 0.45, -0.55)
    axes.set_yticks(range(len(lanes.lanes)), [_named(lane, limit) for lane in lanes.lanes], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    every = tuple(
        marks for sort in timeline.SORTS for lane in lanes.lanes for marks in lane.marks if marks.sort is sort
    )
    handles, labels = timeline.key(every, has_outage=any(len(lane.outages) for lane in lanes.lanes))
    style.fitted_legend(
        axes, handles, labels, _KEY_COLUMNS, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.3,
        columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip


def _named(lane: Lane, limit: int) -> str:
    """Its two lines: of a long name the end, which tells hosts apart."""
    host = cells.text(lane.host)
    return f"{cells.text(lane.label)}\n{host if len(host) <= limit else f'...{host[3 - limit :]}'}"


def height_in(lanes: Lanes) -> float:
    """The height for its lanes, and for what it tells in words."""
    return _ROOM_IN + _LANE_IN * max(1, len(lanes.lanes)) + 0.15 * len(lanes.told)


def notes(lanes: Lanes) -> list[str]:
    """The worst events in words, and what is left out."""
    found = [cells.text(told) for told in lanes.told]
    if len(lanes.lanes) < lanes.lane_count:
        found.append(f"{len(lanes.lanes)} of {lanes.lane_count} sessions: those with the worst events, then the first")
    return found


def title(lanes: Lanes) -> str:
    """Names what the lanes show."""
    return "What happened: sessions and their events"


def view(trace: TraceTables, zoom: Zoom, origin_ns: int) -> View:
    """From the first packet of the sessions to the last."""
    return view_of(trace.table, zoom, origin_ns)


def prepare(trace: TraceTables, view: View, detail: Detail) -> Lanes:
    """The lanes of a view; ``detail`` has no effect."""
    return compute(partial(derived.table, trace), view)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="A row is a session; its marks are of TCP above, iSCSI in the middle and SCSI below. Shaded: no I/O "
    "completed. A line after a mark is how long it lasted.",
    tables=with_events(),
    view=view,
    pictures=whole_session("Events"),
    height_in=height_in,
    has_timeline=False,
    place=9,
)
