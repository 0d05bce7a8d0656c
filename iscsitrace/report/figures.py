"""The plots of a session as pictures of a page: which ones, of which part of the time, and how to read each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.view import Zoom
from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.analysis.measures.selection import pick
from iscsitrace.errors import InputInvalid
from iscsitrace.outputs.drawings import KINDS
from iscsitrace.plots import inline, style
from iscsitrace.report.document import Picture
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import Trace

_DETAIL: Final = Detail(limit=4_000, columns=1_000)
_AROUND: Final = 0.6
"""Share of a task's time that is shown before and after it."""

_READ: Final = {
    "throughput": "Payload a second, the share of time in which the line is idle, and how many tasks are outstanding.",
    "budget": "Who owns the time: each colour is a part of the budget, over time above, in total below.",
    "latency": "Each task above, on the left; a step in the curve on the right is a second kind of task.",
    "cycles": "A row is a task: when it was outstanding on the left, its phases from the command on the right. "
    "Look for the colour that grows.",
    "window": "Outstanding data that touches the dashed line waits for the receiver; where it follows the thick green "
    "line, for the congestion window.",
    "sequence": "A bar is a segment, the green line what was acknowledged, the dashed one the window. Steepness is "
    "throughput, a flat stretch a pause; R marks what was sent again.",
    "ladder": "Time runs downwards; packets cross from one host to the other. Shaded spans are idle at the tap, the "
    "column on the right says on what they were spent.",
    "streams": "Connections that worked together, beside each other: what each carried, and when.",
}


def needed(is_large: bool) -> tuple[str, ...]:
    """The tables that the plots need; ``is_large`` leaves out what only small inputs are read with."""
    kinds = KINDS.values()
    names = [name for kind in kinds for name in (*kind.tables, *(() if is_large else kind.zoomed_tables))]
    names = [name for name in names if not (is_large and name == "pdus")]
    return tuple(dict.fromkeys(names))


def draw(
    trace: Trace, session: int, jobs: Sequence[Job], looks: inline.Looks
) -> tuple[tuple[Picture, ...], tuple[str, ...]]:
    """The pictures of a session, and why others are missing; ``jobs`` are those of the trace."""
    origin_ns = min((each["time_first_ns"] for each in trace.inputs if each["time_first_ns"] is not None), default=0)
    pictures: list[Picture] = []
    missing = []
    for name, kind, zoom in wanted(trace, session, jobs):
        if not set(KINDS[kind].tables) <= set(trace.options["tables"]):
            missing.append(f"{name}: the input is too large for it; `iscsitrace plot {kind}` draws part of it")
            continue
        try:
            drawing = KINDS[kind].prepare(trace, zoom, origin_ns, _DETAIL)
        except InputInvalid as error:
            missing.append(f"{name}: {error}")
            continue
        with style.applied():
            figure = style.new_figure()
            drawing.draw(figure)
        picture = inline.draw(figure, f"{kind}{len(pictures)}-", looks)
        pictures.append(Picture(name, drawing.title, _READ[kind], tuple(drawing.notes), picture.svg, picture.axes))
    return tuple(pictures), tuple(missing)


def wanted(trace: Trace, session: int, jobs: Sequence[Job]) -> Iterator[tuple[str, str, Zoom]]:
    """Name, kind and zoom of each picture, the most telling first."""
    whole = Zoom(session=session)
    cycles = pick(trace.cycles, session=session)
    yield "Throughput", "throughput", whole
    yield "Time budget", "budget", whole
    typical, slowest = _typical(cycles), _slowest(cycles)
    if typical is not None:
        yield "A typical task", "ladder", Zoom(session=session, cycles=range(typical, typical + 1))
    if slowest is not None:
        row = next(pick(cycles, top=1).rows())
        if slowest != typical:
            yield "The slowest task", "ladder", Zoom(session=session, cycles=range(slowest, slowest + 1))
        margin_ns = int(_AROUND * row["latency_ns"])
        around = Zoom(
            session,
            row["connection"],
            time_from_ns=row["command_first_ns"] - margin_ns,
            time_to_ns=row["status_ns"] + margin_ns,
        )
        yield "Packets around it", "sequence", around
    yield "Tasks", "cycles", whole
    yield "Latency", "latency", whole
    yield "Windows", "window", whole
    wide = _wide(jobs, session)
    if wide is not None:
        yield "Streams of the job", "streams", wide
    elif sum(row["session"] == session for row in trace.connections.rows()) > 1:
        yield "Connections", "streams", whole


def _wide(jobs: Sequence[Job], session: int) -> Zoom | None:
    """All sessions while the largest job lasts that this one shares with others; None when it shares none."""
    shared = [job for job in jobs if {run.session for run in job.runs} > {session}]
    if not shared:
        return None
    job = max(shared, key=lambda each: each.bytes)
    return Zoom(
        time_from_ns=job.first_ns, time_to_ns=job.first_ns + job.whole_ns, to_target=job.streams[0].run.to_target
    )


def _slowest(cycles: Table) -> int | None:
    known = cycles.select(~np.ma.getmaskarray(cycles["latency_ns"]))
    return int(pick(known, top=1).raw("cycle")[0]) if len(known) else None


def _typical(cycles: Table) -> int | None:
    """Of the tasks of the operation and size that moved most, the one of the median latency; None without any."""
    known = cycles.select(~np.ma.getmaskarray(cycles["latency_ns"]) & (cycles.raw("data_bytes") > 0))
    if not len(known):
        return None
    kinds, place = np.unique(
        np.stack([known.raw("operation").astype(np.int64), known.raw("data_bytes").astype(np.int64)]),
        axis=1,
        return_inverse=True,
    )
    most = int(np.bincount(place.ravel(), weights=known.raw("data_bytes"), minlength=kinds.shape[1]).argmax())
    alike = known.select(place.ravel() == most)
    order = np.argsort(np.ma.getdata(alike["latency_ns"]), kind="stable")
    return int(alike.raw("cycle")[order[(len(order) - 1) // 2]])
