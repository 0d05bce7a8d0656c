"""One kind of plot: its tables, how its arrays are prepared and drawn, how to read it, its pictures in a report; and
what the commands of a plot are told apart by.

A report shows parts of a session that are worth a plot: a typical command, the slowest command, its I/O job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import numpy as np
from matplotlib.figure import Figure

from iscsitrace import events
from iscsitrace.events import derived
from iscsitrace.measure import connection_counts, waits
from iscsitrace.measure.waits import Waits
from iscsitrace.plots import style, timeline, view
from iscsitrace.plots.marks import Array, Detail
from iscsitrace.plots.style import duration
from iscsitrace.plots.timeline import Timeline
from iscsitrace.plots.view import View, Zoom, slowest_first
from iscsitrace.relate.jobs.streams import Job
from iscsitrace.relate.loads import Attributes
from iscsitrace.tables.nulls import known, numbers_of
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps.reading import TappedTables

OPERATION: Final = "operation"
GROUP_TITLES: Final = {"lun": "LUN", OPERATION: OPERATION, "session": "session", "connection": "connection"}
"""By name, the word in titles."""
_LABEL_LIMIT: Final = 30


@dataclass(frozen=True)
class CommandGroups:
    """Groups of commands."""

    by: str
    """One of GROUP_TITLES."""
    labels: Sequence[str]
    places: Array
    """The place of each command's group among the labels; -1 for none."""

    def select(self, rows: Array) -> CommandGroups:
        """Those of some commands."""
        return replace(self, places=self.places[rows])


def by_operation(cycles: Table) -> CommandGroups:
    """Commands by operation."""
    labels = [str(word or "unknown") for word in cycles.words_by_code("operation").tolist()]
    return CommandGroups(OPERATION, labels, cycles.raw("operation").astype(np.int64))


def groups_of(trace: TraceTables, by: str) -> CommandGroups:
    """The commands of a trace by one of GROUP_TITLES; by LUN only those that read, write or erase data."""
    if by == OPERATION:
        return by_operation(trace.cycles)
    if by in ("session", "connection"):
        numbers, places = np.unique(numbers_of(trace.cycles, by), return_inverse=True)
        labels = [f"{by} {number}" if number >= 0 else f"no {by}" for number in numbers.tolist()]
        return CommandGroups(by, labels, places.ravel())
    found = Attributes(trace.table).by(by)
    return CommandGroups(by, _short(found.labels), found.places)


def _short(labels: Sequence[str]) -> list[str]:
    """``LUN 0`` where all are of one target; else the end of its name, which tells targets apart."""
    pairs = [label.partition(" of ") for label in labels]
    if len({target for _, _, target in pairs}) == 1:
        return [lun for lun, _, _ in pairs]
    return [
        f"{lun} of {target if len(target) <= _LABEL_LIMIT else f'...{target[3 - _LABEL_LIMIT :]}'}"
        for lun, _, target in pairs
    ]


_AROUND_SLOWEST: Final = 0.6
"""Share of a command's latency that is shown before and after it."""


@dataclass(frozen=True)
class Examples:
    """The parts of one session."""

    session: int
    connection_count: int
    typical: int | None = None
    """Number of a command."""
    slowest: int | None = None
    """Number of a data command, or of another if there is none; of the whole story. It may have no status."""
    around_slowest: Zoom | None = None
    """The connection of the slowest command, shortly before to shortly after it."""
    job: Zoom | None = None
    """All sessions during the largest job that this session shares with others."""
    story: tuple[int, ...] = ()
    """Sessions that took its place, or whose place it took."""
    has_connection_counts: bool = False
    """Whether the number of its connections changes while it reads and writes."""

    def command(self, number: int) -> Zoom:
        """One command of the story."""
        return Zoom(session=self.session, cycles=range(number, number + 1), story=self.story)


def examples_of(
    cycles: Table,
    waited: Waits,
    session: int,
    connection_count: int,
    jobs: Sequence[Job],
    story: tuple[int, ...] = (),
) -> Examples:
    """The examples of a session; ``cycles``, their waits and ``jobs`` are those of the trace, ``story`` are the other
    sessions of its story.
    """
    is_measured = (cycles.raw("session") == session) & known(cycles, "session") & known(cycles, "latency_ns")
    slowest, around = _slowest_command(cycles, waited, np.isin(cycles.raw("session"), (session, *story)))
    return Examples(
        session=session,
        connection_count=connection_count,
        typical=_typical_command(cycles.select(is_measured)),
        slowest=slowest,
        around_slowest=around,
        job=_shared_job(jobs, session),
        story=story,
        has_connection_counts=connection_count > 1
        and any(each.session == session for each in connection_counts.of_cycles(cycles)),
    )


def _slowest_command(cycles: Table, waited: Waits, which: Array) -> tuple[int | None, Zoom | None]:
    """The slowest data command among these, or of others if there is none; and the time around it."""
    ranked = slowest_first(cycles, waited, which)
    if not len(ranked):
        return None, None
    chosen = ranked[:1]
    (row,) = cycles.select(chosen).rows(("cycle", "session", "connection", "command_first_ns"))
    (end_ns,) = waited.select(chosen).ends_ns(cycles.select(chosen)).tolist()
    margin_ns = int(_AROUND_SLOWEST * (end_ns - row["command_first_ns"]))
    first_ns, last_ns = row["command_first_ns"] - margin_ns, end_ns + margin_ns
    return row["cycle"], Zoom(row["session"], row["connection"], time_from_ns=first_ns, time_to_ns=last_ns)


def _typical_command(cycles: Table) -> int | None:
    """Of the commands of the operation and size that moved most bytes, the one with the median latency."""
    moved = cycles.select(cycles.raw("data_bytes") > 0)
    if not len(moved):
        return None
    sorts, place = np.unique(
        np.stack([moved.raw("operation").astype(np.int64), moved.raw("data_bytes").astype(np.int64)]),
        axis=1,
        return_inverse=True,
    )
    most = int(np.bincount(place.ravel(), weights=moved.raw("data_bytes"), minlength=sorts.shape[1]).argmax())
    alike = moved.select(place.ravel() == most)
    order = np.argsort(np.ma.getdata(alike["latency_ns"]), kind="stable")
    return int(alike.raw("cycle")[order[(len(order) - 1) // 2]])


def _shared_job(jobs: Sequence[Job], session: int) -> Zoom | None:
    shared = [job for job in jobs if {run.session for run in job.runs} > {session}]
    if not shared:
        return None
    job = max(shared, key=lambda each: each.bytes)
    return Zoom(
        time_from_ns=job.first_ns, time_to_ns=job.first_ns + job.whole_ns, to_target=job.streams[0].run.to_target
    )


_Curves = TypeVar("_Curves")


def view_of_commands(trace: TraceTables, zoom: Zoom, origin_ns: int) -> View:
    """The view of commands: from the first command to the last status."""
    return view.of_tasks(trace.connections, trace.cycles, zoom, origin_ns, _in_flight_until_ns(trace))


def view_of_data_commands(trace: TraceTables, zoom: Zoom, origin_ns: int) -> View:
    """The view of data commands: from the first one to the last status."""
    until_ns = _in_flight_until_ns(trace)
    return view.of_tasks(trace.connections, trace.cycles, zoom, origin_ns, until_ns, is_of_data=True)


def view_of_streams(trace: TraceTables, zoom: Zoom, origin_ns: int) -> View:
    """The view of connections while they read and wrote."""
    return view.of_streams(trace.connections, trace.cycles, zoom, origin_ns)


def view_of_connection(trace: TraceTables, zoom: Zoom, origin_ns: int) -> View:
    """The view of one connection."""
    return view.of_connection(trace.connections, trace.cycles, zoom, origin_ns, _in_flight_until_ns(trace))


def _in_flight_until_ns(trace: TraceTables) -> Array:
    return waits.of_trace(trace.table).ends_ns(trace.cycles)


@dataclass(frozen=True)
class Drawing:
    """A plot that is ready to be drawn."""

    view: View
    title: str
    draw: Callable[[Figure], None]
    notes: Sequence[str] = ()
    height_in: float = style.HEIGHT_IN
    xplot: Callable[[str], Iterable[str]] | None = None
    """The same plot in xplot's language, with a title."""


@dataclass(frozen=True)
class Kind(Generic[_Curves]):
    """One kind of plot."""

    prepare: Callable[[TraceTables, View, Detail], _Curves]
    """The arrays of a view; InputInvalid when there is nothing to draw."""
    draw: Callable[[Figure, _Curves], None]
    title: Callable[[_Curves], str]
    notes: Callable[[_Curves], Sequence[str]]
    """What the plot omits or assumes."""
    how_to_read: str
    tables: tuple[str, ...] = ()
    """Tables that the trace must be read with."""
    zoomed_tables: tuple[str, ...] = ()
    """Tables that are read only for a small input or a zoomed plot."""
    view: Callable[[TraceTables, Zoom, int], View] = view_of_commands
    """What is shown for a zoom and the zero of the time axis."""
    xplot: Callable[[_Curves, str], Iterable[str]] | None = None
    pictures: Callable[[Examples], Iterable[tuple[str, Zoom]]] = lambda examples: ()
    """Name and zoom of each picture in the report on a session."""
    height_in: Callable[[_Curves], float] = lambda curves: style.HEIGHT_IN
    """The height of the plot."""
    is_at_sender: bool = False
    """Whether it shows a direction as the tap nearest to its sender has it."""
    has_timeline: bool = True
    """Whether outages are shaded in it, and events are marked below it."""
    has_top: bool = False
    """Whether it draws the worst of many sessions or connections each for itself: ``Detail.top``."""
    is_told_apart: bool = False
    """Whether it can tell commands apart by what is asked for: ``Detail.by``."""
    is_of_taps: bool = False
    """Whether it needs captures of several taps."""
    place: int = 0
    """Its place among the kinds in a report."""

    def drawing(self, trace: TraceTables, zoom: Zoom, origin_ns: int, detail: Detail) -> Drawing:
        """The plot of a part of a trace; InputInvalid when there is nothing to draw."""
        seen = self.view(trace, zoom, origin_ns)
        curves = self.prepare(trace, seen, detail)
        xplot = self.xplot
        below = self._timeline(trace, seen)
        return Drawing(
            view=seen,
            title=self.title(curves),
            draw=lambda figure: self._draw(figure, curves, below),
            height_in=self.height_in(curves) + (timeline.room_in(below) if below else 0.0),
            notes=[*_left_out(seen), *(_seen_at(trace, seen) if self.is_at_sender else ()), *self.notes(curves)],
            xplot=None if xplot is None else lambda title: xplot(curves, title),
        )

    def _timeline(self, trace: TraceTables, seen: View) -> Timeline | None:
        if not self.has_timeline or not set(events.NEEDED) <= set(self.tables):
            return None
        return timeline.of_view(derived.table(trace, "events"), trace.connections, seen)

    def _draw(self, figure: Figure, curves: _Curves, below: Timeline | None) -> None:
        self.draw(figure, curves)
        if below is not None:
            timeline.draw(figure, below)


def with_events(*tables: str) -> tuple[str, ...]:
    """These tables, and those that events are made from."""
    return tuple(dict.fromkeys((*tables, *events.NEEDED)))


def at_sender(trace: TraceTables, seen: View) -> tuple[str, Callable[[str], Any]]:
    """The tap nearest to the sender of a view's direction: its name, "" of an only tap, and its tables."""
    if not isinstance(trace, TappedTables):
        return "", trace.table
    return trace.at_sender(seen.connection, to_target=seen.to_target)


def _seen_at(trace: TraceTables, seen: View) -> Iterable[str]:
    """Which of several taps shows the sender."""
    name, _ = at_sender(trace, seen)
    if name:
        yield f"as the tap {name} shows it, the nearest to the sender"


def _left_out(seen: View) -> Iterable[str]:
    """What a view omits that begins with the first data command, and how to see it."""
    parts = [f"{duration(ns)} {name}" for ns, name in zip(seen.left_out_ns, ("before", "after"), strict=True) if ns]
    if parts:
        until_s = -(-(seen.end_ns + seen.left_out_ns[1] - seen.origin_ns) // 1_000_000_000)
        yield f"only the time of the commands: {' and '.join(parts)} left out (--from 0s --to {until_s}s shows all)"


def whole_session(name: str) -> Callable[[Examples], Iterable[tuple[str, Zoom]]]:
    """One picture of the whole session."""
    return lambda examples: [(name, Zoom(session=examples.session, story=examples.story))]
