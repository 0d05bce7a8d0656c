"""Figures that are drawn from the capture of a point: the packets of a few commands, or the streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import iscsitrace
from iscsitrace.analysis.curves import ladder as ladder_curves
from iscsitrace.analysis.curves import subject, view
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.plots import footer, kinds
from iscsitrace.plots.kinds import ladder

Drawing = tuple[Callable[[Any], None], tuple[str, ...]]
"""How to draw the figure, and the text below it."""
_LADDER_TABLES: Final = ("segments", "pdus", "budget")


def packets(capture: Path, count: int) -> Drawing | None:
    """The packets of the last commands but one, which are in steady state; None when there are too few."""
    trace = iscsitrace.read(capture, tables=_LADDER_TABLES)
    commands = [row["cycle"] for row in trace.cycles.rows() if row["operation"] in {"read", "write"}]
    if len(commands) <= count:
        return None
    last = commands[-1]
    zoom = view.Zoom(cycles=range(last - count, last))
    origin_ns = trace.inputs[0]["time_first_ns"]
    seen = view.of_connection(trace.connections, trace.cycles, zoom, origin_ns)
    found = ladder_curves.prepare(trace.connections, trace.cycles, trace.segments, trace.pdus, trace.budget, seen)
    about = subject.describe([str(capture)], trace.connections, trace.coverage, seen)
    lines = (*(f"Note: {note}" for note in ladder.notes(found)), *footer.facts(about))
    return lambda drawn: ladder.draw(drawn, found), lines


def streams(capture: Path) -> Drawing:
    """The streams, as `plot streams` draws them."""
    kind = kinds.load("streams")
    trace = iscsitrace.read(capture, tables=kind.tables)
    drawing = kind.drawing(trace, view.Zoom(), trace.inputs[0]["time_first_ns"], Detail())
    about = subject.describe([str(capture)], trace.connections, trace.coverage, drawing.view)
    return drawing.draw, (*(f"Note: {note}" for note in drawing.notes), *footer.facts(about))
