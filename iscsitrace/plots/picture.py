"""A plot of a trace as a picture file: drawn, with its title and footer."""

from __future__ import annotations

from typing import IO

from iscsitrace.analysis.curves import subject
from iscsitrace.analysis.curves.subject import Subject
from iscsitrace.plots import footer, style
from iscsitrace.plots.kind import Drawing
from iscsitrace.tables.trace import Trace


def origin_ns(trace: Trace) -> int:
    """The time of the first packet: the zero of a time axis."""
    return min((each["time_first_ns"] for each in trace.inputs if each["time_first_ns"] is not None), default=0)


def about(trace: Trace, drawing: Drawing) -> Subject:
    """What the footer says of a plot: the captures of all taps, and what it shows of them."""
    taps = trace.provenance.get("taps", [{"input": trace.inputs}])
    names = [each["name"] for tap in taps for each in tap["input"]]
    return subject.describe(names, trace.connections, trace.coverage, drawing.view)


def write(stream: IO[bytes], ending: str, drawing: Drawing, facts: Subject) -> None:
    """Writes it as ``png``, ``svg`` or ``pdf``."""
    with style.applied():
        figure = style.new_figure(drawing.height_in)
        drawing.draw(figure)
        footer.write(figure, drawing.title, facts, drawing.notes)
        style.write(figure, stream, ending)
