"""One kind of plot: its tables, how its arrays are prepared and drawn, how to read it, its pictures in a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from matplotlib.figure import Figure

from iscsitrace import events
from iscsitrace.events import derived
from iscsitrace.measure import waits
from iscsitrace.plots import style, timeline, view
from iscsitrace.plots.decimation import Detail
from iscsitrace.plots.examples import Examples
from iscsitrace.plots.marks import Array
from iscsitrace.plots.scales import duration
from iscsitrace.plots.timeline import Timeline
from iscsitrace.plots.view import View, Zoom
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps.reading import TappedTables

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
        yield f"only the time of the reads and writes: {' and '.join(parts)} left out (--from 0s shows all)"


def whole_session(name: str) -> Callable[[Examples], Iterable[tuple[str, Zoom]]]:
    """One picture of the whole session."""
    return lambda examples: [(name, Zoom(session=examples.session, story=examples.story))]
