"""A plot as a picture file: drawn, with its title and footer."""

from __future__ import annotations

from typing import IO

from iscsitrace.plots import footer, style
from iscsitrace.plots.kind import Drawing
from iscsitrace.plots.subject import Subject


def write(stream: IO[bytes], ending: str, drawing: Drawing, about: Subject) -> None:
    """Writes it as ``png``, ``svg`` or ``pdf``."""
    with style.applied():
        figure = style.new_figure(drawing.height_in)
        drawing.draw(figure)
        footer.write(figure, drawing.title, about, drawing.notes)
        style.write(figure, stream, ending)
