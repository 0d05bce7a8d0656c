"""A quantity over the time of a run, for several runs of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure

from iscsitrace.plots import style

_COLORS = (
    style.BLUE,
    style.VERMILLION,
    style.GREEN,
    style.PURPLE,
    style.ORANGE,
    style.SKY,
    style.BLACK,
)
_STYLES = ("-", "--", ":")
Look = Literal["line", "steps", "dots"]


@dataclass(frozen=True)
class CourseLine:
    """One run: its name, and the values over time."""

    name: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]
    look: Look = "line"
    """Whether each value holds until the next one (steps), or is on its own (dots)."""


def draw(figure: Figure, lines: tuple[CourseLine, ...], y_label: str) -> None:
    """Draws all lines on one time axis."""
    axes = figure.subplots()
    for number, line in enumerate(lines):
        axes.plot(
            line.times_s,
            line.values,
            color=_COLORS[number % len(_COLORS)],
            linestyle="" if line.look == "dots" else _STYLES[number // len(_COLORS) % len(_STYLES)],
            linewidth=1.2,
            marker="." if line.look == "dots" else "",
            markersize=2.0,
            drawstyle="steps-post" if line.look == "steps" else "default",
            label=line.name,
        )
    axes.set_xlabel("time since the first command, s")
    axes.set_ylabel(y_label)
    style.from_zero(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, frameon=False, borderaxespad=0.3)
