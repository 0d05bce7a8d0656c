"""The kinds of plots: which tables each reads, and how its arrays are prepared and drawn. It writes no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iscsitrace.analysis.curves.decimation import Detail
    from iscsitrace.analysis.curves.view import View, Zoom
    from iscsitrace.tables.trace import Trace


@dataclass(frozen=True)
class Drawing:
    """A plot that is ready to be drawn."""

    view: View
    title: str
    draw: Callable[[Any], None]
    notes: Sequence[str] = ()
    xplot: Callable[[str], Iterable[str]] | None = None
    """The same in xplot's language, with a title."""


@dataclass(frozen=True)
class Kind:
    """One kind of plot."""

    prepare: Callable[[Trace, Zoom, int, Detail], Drawing]
    """From a trace, what is asked to be seen, the zero of the time axis, and how much detail."""
    tables: tuple[str, ...] = ()
    zoomed_tables: tuple[str, ...] = ()
    """Tables that are read only when the input is small or the plot shows part of it."""
    has_xplot: bool = field(default=False)


def _drawing(view: View, plot: Any, found: Any, xplot: Callable[[str], Iterable[str]] | None = None) -> Drawing:
    """The drawing of arrays by a module of iscsitrace.plots."""
    return Drawing(view, plot.title(found), lambda figure: plot.draw(figure, found), plot.notes(found), xplot)


def _view_of_connection(trace: Trace, zoom: Zoom, origin_ns: int) -> View:
    from iscsitrace.analysis.curves import view

    return view.of_connection(trace.connections, trace.cycles, zoom, origin_ns)


def _view_of_tasks(trace: Trace, zoom: Zoom, origin_ns: int) -> View:
    from iscsitrace.analysis.curves import view

    return view.of_tasks(trace.connections, trace.cycles, zoom, origin_ns)


def _sequence(trace: Trace, zoom: Zoom, origin_ns: int, detail: Detail) -> Drawing:
    from iscsitrace.analysis.curves import sequence as curves

    view = _view_of_connection(trace, zoom, origin_ns)
    pdus = trace.pdus if "pdus" in trace.options["tables"] else None
    found = curves.prepare(trace.segments, trace.sacks, pdus, trace.cycles, view, detail)
    from iscsitrace.plots import sequence, xplot

    return _drawing(view, sequence, found, lambda title: xplot.of_sequence(found, title))


def _window(trace: Trace, zoom: Zoom, origin_ns: int, detail: Detail) -> Drawing:
    from iscsitrace.analysis.curves import window as curves

    view = _view_of_connection(trace, zoom, origin_ns)
    found = curves.prepare(trace.window, trace.retransmissions, trace.recoveries, trace.cycles, view, detail)
    from iscsitrace.plots import window, xplot

    return _drawing(view, window, found, lambda title: xplot.of_window(found, title))


def _ladder(trace: Trace, zoom: Zoom, origin_ns: int, detail: Detail) -> Drawing:
    from iscsitrace.analysis.curves import ladder as curves

    view = _view_of_connection(trace, zoom, origin_ns)
    if view.cycles is None:
        number = curves.slowest(trace.cycles, view)
        view = _view_of_connection(trace, replace(zoom, cycles=range(number, number + 1)), origin_ns)
    found = curves.prepare(trace.connections, trace.cycles, trace.segments, trace.pdus, trace.budget, view)
    from iscsitrace.plots import ladder

    return _drawing(view, ladder, found)


def _cycles(trace: Trace, zoom: Zoom, origin_ns: int, detail: Detail) -> Drawing:
    from iscsitrace.analysis.curves import cycles as curves

    view = _view_of_tasks(trace, zoom, origin_ns)
    found = curves.prepare(trace.cycles, view)
    from iscsitrace.plots import cycles

    return _drawing(view, cycles, found)


def _latency(trace: Trace, zoom: Zoom, origin_ns: int, detail: Detail) -> Drawing:
    from iscsitrace.analysis.curves import latency as curves

    view = _view_of_tasks(trace, zoom, origin_ns)
    found = curves.prepare(trace.cycles, view, detail)
    from iscsitrace.plots import latency

    return _drawing(view, latency, found)


def _throughput(trace: Trace, zoom: Zoom, origin_ns: int, detail: Detail) -> Drawing:
    from iscsitrace.analysis.curves import budget
    from iscsitrace.analysis.curves import throughput as curves

    view = _view_of_tasks(trace, zoom, origin_ns)
    edges = curves.edges(view)
    idle = budget.idle_share(trace.budget, edges, view)
    found = curves.prepare(trace.segments, trace.cycles, idle, edges, view)
    from iscsitrace.plots import throughput

    return _drawing(view, throughput, found)


def _budget(trace: Trace, zoom: Zoom, origin_ns: int, detail: Detail) -> Drawing:
    from iscsitrace.analysis.curves import budget as curves
    from iscsitrace.analysis.curves.throughput import edges

    view = _view_of_tasks(trace, zoom, origin_ns)
    found = curves.prepare(trace.budget, edges(view), view)
    from iscsitrace.plots import budget

    return _drawing(view, budget, found)


def _streams(trace: Trace, zoom: Zoom, origin_ns: int, detail: Detail) -> Drawing:
    from iscsitrace.analysis.curves import streams as curves
    from iscsitrace.analysis.groups.jobs import streams as jobs
    from iscsitrace.analysis.groups.mirrors import recognition

    view = _view_of_tasks(trace, zoom, origin_ns)
    of_trace = jobs.find(trace.table, recognition.find(trace.table))
    found = curves.prepare(trace.segments, trace.window, view, jobs=of_trace)
    from iscsitrace.plots import streams

    return _drawing(view, streams, found)


KINDS: dict[str, Kind] = {
    "sequence": Kind(_sequence, ("segments", "sacks"), ("pdus",), has_xplot=True),
    "window": Kind(_window, ("window", "retransmissions", "recoveries"), has_xplot=True),
    "ladder": Kind(_ladder, ("segments", "pdus", "budget")),
    "cycles": Kind(_cycles),
    "latency": Kind(_latency),
    "throughput": Kind(_throughput, ("segments", "budget")),
    "budget": Kind(_budget, ("budget",)),
    "streams": Kind(_streams, ("segments", "window", "budget", "recoveries", "senders", "retransmissions")),
}
"""Every kind by name, in the order of the help."""
