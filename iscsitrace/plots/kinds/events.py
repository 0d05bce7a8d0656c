"""Sessions as lanes: outages, lost connections, logins, aborts and errors over time."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from iscsitrace.analysis.curves import lanes as curves
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.events import LAYERS, SORTS
from iscsitrace.analysis.curves.lanes import Lanes
from iscsitrace.analysis.curves.view import View, Zoom
from iscsitrace.analysis.groups import derived
from iscsitrace.plots import style, timeline
from iscsitrace.plots.kind import Kind, whole_session, with_events
from iscsitrace.plots.scales import TimeAxis
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import cells

_LANE_IN = 0.5
_KEY_IN = 1.75
"""Width of an entry of the legend."""
_LAYER = 0.24
"""Distance of the marks of TCP, iSCSI and SCSI in a lane."""
_ROOM_IN = 1.6
"""Height of the plot besides its lanes: title, legend, axis and facts."""
_LABEL_LIMIT = 48


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
        places = [row + _LAYER * (LAYERS.index(marks.sort.layer) - 1) for marks in lane.marks]
        timeline.draw_marks(axes, lane.marks, lanes.view, places)
    axes.set_ylim(len(lanes.lanes) - 0.45, -0.55)
    axes.set_yticks(range(len(lanes.lanes)), [_shown(lane.label) for lane in lanes.lanes])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    every = tuple(marks for sort in SORTS for lane in lanes.lanes for marks in lane.marks if marks.sort is sort)
    handles, labels = timeline.key(every, has_outage=any(len(lane.outages) for lane in lanes.lanes))
    columns = max(2, round(figure.get_size_inches()[0] / _KEY_IN))
    axes.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, frameon=False,
        borderaxespad=0.3, columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip


def _shown(label: str) -> str:
    safe = cells.text(label)
    return safe if len(safe) <= _LABEL_LIMIT else f"{safe[: _LABEL_LIMIT - 3]}..."


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


def view(trace: Trace, zoom: Zoom, origin_ns: int) -> View:
    """From the first packet of the sessions to the last."""
    return curves.view(trace.table, zoom, origin_ns)


def prepare(trace: Trace, view: View, detail: Detail) -> Lanes:
    """The lanes of a view; ``detail`` has no effect."""
    return curves.prepare(partial(derived.table, trace), view)


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
