"""The plots of a session as pictures of a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import waits
from iscsitrace.plots import inline, kind, kinds, style
from iscsitrace.plots.marks import Detail
from iscsitrace.plots.view import Zoom
from iscsitrace.relate.jobs.streams import Job
from iscsitrace.show.document import Plots, Section, SvgPlot
from iscsitrace.tables.trace import TraceTables

_DETAIL: Final = Detail(limit=4_000, columns=1_000)
_WIDE_IN: Final = 6.6
_NARROW_IN: Final = 3.7
"""Widths of the time line beside the advice of a wide page, and of a narrow page."""


def needed(is_large: bool) -> tuple[str, ...]:
    """The tables that the plots need; ``is_large`` omits those that only small inputs are read with."""
    every = [kinds.load(name) for name in kinds.NAMES]
    names = [name for kind in every for name in (*kind.tables, *(() if is_large else kind.zoomed_tables))]
    names = [name for name in names if not (is_large and name == "pdus")]
    return tuple(dict.fromkeys(names))


def draw(
    trace: TraceTables, session: int, jobs: Sequence[Job], looks: inline.Looks, story: tuple[int, ...] = ()
) -> tuple[tuple[SvgPlot, ...], tuple[str, ...]]:
    """The pictures of a session, and why others are missing; ``jobs`` are those of the trace, ``story`` are the other
    sessions of its story.
    """
    return _drawn(trace, wanted(trace, session, jobs, story), looks)


def section(pictures: Sequence[SvgPlot], left_out: Sequence[str] = ()) -> tuple[Section, ...]:
    """The section of the pictures; nothing without any. ``left_out`` says why others are missing."""
    return (Section("Plots", (Plots(tuple(pictures), tuple(left_out)),), "plots"),) if pictures else ()


def of_places(trace: TraceTables, session: int, looks: inline.Looks) -> Plots:
    """Of several taps: the time of the commands of a session by place, and the network between the taps."""
    zoom = Zoom(session=session)
    wanted_here = (("Delays and losses", "path", zoom), ("Time by place", "legs", zoom))
    return Plots(*_drawn(trace, wanted_here, looks), has_tabs=False)


def _drawn(
    trace: TraceTables, pictures_wanted: Iterable[tuple[str, str, Zoom]], looks: inline.Looks
) -> tuple[tuple[SvgPlot, ...], tuple[str, ...]]:
    """The pictures of these names, kinds and zooms, and why others are missing."""
    origin_ns = trace.start_ns
    pictures: list[SvgPlot] = []
    missing: dict[str, list[str]] = {}
    for name, kind_name, zoom in pictures_wanted:
        kind = kinds.load(kind_name)
        if not set(kind.tables) <= set(trace.options["tables"]):
            why = f"the input is too large; `iscsitrace plot {kind_name}` draws a part of it"
            missing.setdefault(why, []).append(name)
            continue
        try:
            drawing = kind.drawing(trace, zoom, origin_ns, _DETAIL)
        except InputInvalid as error:
            missing.setdefault(str(error), []).append(name)
            continue
        with style.applied():
            figure = style.new_figure(drawing.height_in)
            drawing.draw(figure)
        picture = inline.draw(figure, f"{kind_name}{len(pictures)}-", looks)
        pictures.append(SvgPlot(name, drawing.title, kind.how_to_read, tuple(drawing.notes), picture.svg, picture.axes))
    return tuple(pictures), tuple(f"{', '.join(names)}: {why}" for why, names in missing.items())


def timeline(trace: TraceTables, session: int | None, looks: inline.Looks) -> tuple[SvgPlot, ...]:
    """The events of a session's story, or of the capture: for a wide page, and for a narrow one."""
    kind = kinds.load("events")
    if not set(kind.tables) <= set(trace.options["tables"]):
        return ()
    drawing = kind.drawing(trace, Zoom(session=session), trace.start_ns, _DETAIL)
    pictures: list[SvgPlot] = []
    for name, width_in in (("wide", _WIDE_IN), ("narrow", _NARROW_IN)):
        with style.applied():
            # what it tells in words is in the page
            figure = style.new_figure(drawing.height_in - 0.15 * len(drawing.notes), width_in)
            drawing.draw(figure)
            style.make_room_for_legend(figure)
        found = inline.draw(figure, f"timeline-{name}-", looks)
        notes = tuple(drawing.notes) if not pictures else ()
        pictures.append(SvgPlot(name, drawing.title, kind.how_to_read, notes, found.svg, found.axes))
    return tuple(pictures)


def wanted(
    trace: TraceTables, session: int, jobs: Sequence[Job], story: tuple[int, ...] = ()
) -> Iterator[tuple[str, str, Zoom]]:
    """Name, kind and zoom of each picture, in the order of the page."""
    connection_count = sum(row["session"] == session for row in trace.connections.rows())
    found = kind.examples_of(trace.cycles, waits.of_trace(trace.table), session, connection_count, jobs, story)
    for kind_name in sorted(kinds.NAMES, key=lambda each: kinds.load(each).place):
        for name, zoom in kinds.load(kind_name).pictures(found):
            yield name, kind_name, zoom
