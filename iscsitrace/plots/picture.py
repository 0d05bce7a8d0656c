"""A plot as a picture file: drawn, with its title and footer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from matplotlib.figure import Figure

from iscsitrace.plots import footer, style
from iscsitrace.plots.kind import Drawing
from iscsitrace.plots.subject import PlotSubject


@dataclass(frozen=True)
class PictureSize:
    """The size of a picture; what is None is left to the plot."""

    width_in: float | None = None
    height_in: float | None = None
    dots_per_inch: float | None = None
    """Pixels of a PNG per inch."""

    def of(self, drawing: Drawing) -> tuple[float, float]:
        """Width and height in inches."""
        return self.width_in or style.WIDTH_IN, self.height_in or drawing.height_in


_USUAL = PictureSize()


def draw(figure: Figure, drawing: Drawing, about: PlotSubject) -> None:
    """Draws it, with all that is written around it."""
    drawing.draw(figure)
    footer.write(figure, drawing.title, about, drawing.notes)


def figure_of(drawing: Drawing, about: PlotSubject, size: PictureSize = _USUAL) -> Figure:
    """The whole picture."""
    width_in, height_in = size.of(drawing)
    with style.applied():
        figure = style.new_figure(height_in, width_in)
        draw(figure, drawing, about)
    return figure


def write(stream: IO[bytes], ending: str, drawing: Drawing, about: PlotSubject, size: PictureSize = _USUAL) -> None:
    """Writes it as ``png``, ``svg`` or ``pdf``."""
    style.write(figure_of(drawing, about, size), stream, ending, size.dots_per_inch)
