"""A quantity of an experiment over one of its settings: measured, predicted by the model, published."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from iscsitrace.plots import style

_LOOKS = (
    (style.BLUE, "o"),
    (style.VERMILLION, "s"),
    (style.GREEN, "^"),
    (style.PURPLE, "D"),
    (style.ORANGE, "v"),
    (style.SKY, "P"),
    (style.BLACK, "X"),
)
_LEGEND_LETTERS = 150
"""Letters in a row of the legend; each mark takes the width of ``_MARK_LETTERS`` more."""
_MARK_LETTERS = 8


@dataclass(frozen=True)
class Line:
    """One line: positions along x and their values; None where a value is unknown."""

    name: str
    places: tuple[float, ...]
    measured: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    """95 % confidence intervals of the measured values; None for one run."""
    counts: tuple[int, ...]
    """Runs of each measured value."""
    model: tuple[float | None, ...]
    published: tuple[float | None, ...]


@dataclass(frozen=True)
class Chart:
    """One figure of an experiment."""

    title: str
    x_label: str
    y_label: str
    ticks: tuple[tuple[float, str], ...]
    """Positions along x, and their labels."""
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    stars: str = "printed in the study"
    """What the published values are."""

    def has(self, name: str) -> bool:
        """Whether a line has a value of this field."""
        return any(value is not None for line in self.lines for value in getattr(line, name))


def draw(figure: Figure, chart: Chart) -> None:
    """Draws marks with error bars for measured values, lines for the model, stars for published values."""
    axes = figure.subplots()
    for line, (color, mark) in zip(chart.lines, _cycled(len(chart.lines)), strict=True):
        _draw_line(axes, line, color, mark)
    axes.set_xticks([place for place, _ in chart.ticks], [text for _, text in chart.ticks])
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    style.from_zero(axes)
    _explain(axes, chart)


def _cycled(count: int) -> list[tuple[str, str]]:
    return [_LOOKS[number % len(_LOOKS)] for number in range(count)]


def _draw_line(axes: Axes, line: Line, color: str, mark: str) -> None:
    known = [
        (place, value, *((value - interval[0], interval[1] - value) if interval else (0.0, 0.0)))
        for place, value, interval in zip(line.places, line.measured, line.intervals, strict=True)
        if value is not None
    ]
    if known:
        places, values, *bars = zip(*known, strict=True)
        has_bars = any(map(any, bars))
        axes.errorbar(
            places, values, yerr=bars if has_bars else None, fmt=mark, color=color, markersize=6, capsize=3,
            label=line.name,
        )  # fmt: skip
    for found, look in (
        (line.model, {"linestyle": "-", "linewidth": 1.2}),
        (line.published, {"linestyle": "none", "marker": "*", "markersize": 12, "markerfacecolor": "none"}),
    ):
        pairs = [(place, value) for place, value in zip(line.places, found, strict=True) if value is not None]
        if pairs:
            axes.plot(*zip(*pairs, strict=True), color=color, **look)  # type: ignore[arg-type]


def _explain(axes: Axes, chart: Chart) -> None:
    """Adds a legend: the mark of each line, and the meaning of error bars, lines and stars."""
    handles, labels = axes.get_legend_handles_labels()
    for is_there, look, text in (
        (
            chart.has("intervals"),
            {"linestyle": "none", "marker": "|", "markersize": 11, "markeredgewidth": 1.5},
            "95 % confidence interval",
        ),
        (chart.has("model"), {"linestyle": "-"}, "model"),
        (
            chart.has("published"),
            {"linestyle": "none", "marker": "*", "markersize": 11, "markerfacecolor": "none"},
            chart.stars,
        ),
    ):
        if is_there:
            handles.append(Line2D([], [], color=style.GREY, **look))
            labels.append(text)
    if handles:
        columns = max(1, _LEGEND_LETTERS // (max(map(len, labels)) + _MARK_LETTERS))
        axes.legend(
            handles,
            labels,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=columns,
            frameon=False,
            borderaxespad=0.3,
        )
