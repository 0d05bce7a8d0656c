"""A quantity of an experiment over one of its settings, or over the time of runs; and the time breakdown as bars.

Over a setting it is measured, predicted by the model and published. The bars have a panel for each arm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from iscsitrace.plots import style
from iscsitrace.wording.amounts import percentage
from iscsitrace.wording.parts import PARTS

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
_MARK_SIZE, _STAR_SIZE, _RING = 6.0, 12.0, 4.0
"""Points; a mark around another one is larger by ``_RING``."""
_EQUAL = 0.01
"""Values that differ by less than this share of the largest one have marks at the same place."""
_MODEL: dict[str, Any] = {"linestyle": "-", "linewidth": 1.2}
_PRINTED: dict[str, Any] = {"linestyle": "none", "marker": "*", "markerfacecolor": "none"}
_COMPUTED: dict[str, Any] = {"linestyle": "none", "marker": "p", "markerfacecolor": "none"}
_ALONE: dict[str, Any] = {"marker": "_", "markersize": 18}
_LEVEL: dict[str, Any] = {"linestyle": "--", "linewidth": 1.2, "zorder": 0}
_BAND: dict[str, Any] = {"facecolor": style.PALE, "edgecolor": style.GREY, "linestyle": ":", "zorder": 0}


@dataclass(frozen=True)
class Graph:
    """One line: positions along x and their values; None where a value is unknown."""

    name: str
    places: tuple[float, ...]
    measured: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    """95 % confidence intervals of the measured values; None for one run."""
    counts: tuple[int, ...]
    """Runs of each measured value."""
    model: tuple[float | None, ...]
    printed: tuple[float | None, ...]
    """What the study prints."""
    computed: tuple[float | None, ...]
    """What is computed from what the study prints."""
    levels: tuple[float, ...] = ()
    """What the study prints without a place along x."""


@dataclass(frozen=True)
class Chart:
    """One figure of an experiment."""

    title: str
    x_label: str
    y_label: str
    ticks: tuple[tuple[float, str], ...]
    """Positions along x, and their labels."""
    lines: tuple[Graph, ...]
    notes: tuple[str, ...] = ()
    printed_range: tuple[float, float] | None = None
    """Limits that the study prints, without a place along x."""

    def has(self, name: str) -> bool:
        """Whether a line has a value of this field."""
        return any(value is not None for line in self.lines for value in getattr(line, name))


def draw(figure: Figure, chart: Chart) -> None:
    """Draws marks with error bars for measured values, lines for the model, stars for printed values, pentagons for
    computed ones, a band for a printed range, and dashed lines for values that are printed without a place.

    Where lines coincide, earlier ones have larger marks: rings around the later ones.
    """
    axes = figure.subplots()
    if chart.printed_range is not None:
        axes.axhspan(*chart.printed_range, **_BAND)
    for number, (line, (color, mark)) in enumerate(zip(chart.lines, _cycled(len(chart.lines)), strict=True)):
        _draw_line(axes, line, color, mark, chart.lines[number + 1 :])
    axes.set_xticks([place for place, _ in chart.ticks], [text for _, text in chart.ticks])
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    style.from_zero(axes)
    _explain(axes, chart)


def _cycled(count: int) -> list[tuple[str, str]]:
    return [_LOOKS[number % len(_LOOKS)] for number in range(count)]


def _draw_line(axes: Axes, line: Graph, color: str, mark: str, later: Sequence[Graph]) -> None:
    known = [
        (place, value, *((value - interval[0], interval[1] - value) if interval else (0.0, 0.0)))
        for place, value, interval in zip(line.places, line.measured, line.intervals, strict=True)
        if value is not None
    ]
    for level in line.levels:
        axes.axhline(level, color=color, **_LEVEL)
    if known:
        places, values, *bars = zip(*known, strict=True)
        has_bars = any(map(any, bars))
        covers = _covers(line, later, "measured")
        axes.errorbar(
            places, values, yerr=bars if has_bars else None, fmt=mark, color=color, capsize=3, label=line.name,
            markersize=_MARK_SIZE + _RING * covers, markerfacecolor="none" if covers else color,
        )  # fmt: skip
    rings = _STAR_SIZE + _RING * max(_covers(line, later, "printed"), _covers(line, later, "computed"))
    for name, look in (
        ("model", _MODEL),
        ("printed", _PRINTED | {"markersize": rings}),
        ("computed", _COMPUTED | {"markersize": rings}),
    ):
        pairs = _known(line, name)
        # a line between places needs two of them
        alone = _ALONE if len(pairs) == 1 and name == "model" else {}
        if pairs:
            axes.plot(*zip(*pairs, strict=True), color=color, **look | alone)


def _known(line: Graph, name: str) -> list[tuple[float, float]]:
    """The places and values of a field, where they are known."""
    values = zip(line.places, getattr(line, name), strict=True)
    return [(place, value) for place, value in values if value is not None]


def _covers(line: Graph, later: Sequence[Graph], name: str) -> int:
    """How many of the later lines have values at half of the places of this line or more that are about the same."""
    own = _known(line, name)
    others = [dict(_known(other, name)) for other in later]
    largest = max((abs(value) for found in (dict(own), *others) for value in found.values()), default=0.0)
    equal = [
        sum(abs(value - found[place]) <= _EQUAL * largest for place, value in own if place in found) for found in others
    ]
    return sum(2 * count >= len(own) for count in equal) if own else 0


def _explain(axes: Axes, chart: Chart) -> None:
    """Adds a legend: the mark of each line, and the meaning of bars, lines, stars, pentagons, levels and bands."""
    handles, labels = axes.get_legend_handles_labels()
    for is_there, look, text in (
        (
            chart.has("intervals"),
            {"linestyle": "none", "marker": "|", "markersize": 11, "markeredgewidth": 1.5},
            "95 % confidence interval",
        ),
        (chart.has("model"), _MODEL, "model"),
        (chart.has("printed"), _PRINTED | {"markersize": 11}, "printed in the study"),
        (chart.has("computed"), _COMPUTED | {"markersize": 11}, "computed from what the study prints"),
        (chart.has("levels"), _LEVEL, "printed in the study, without a place"),
    ):
        if is_there:
            handles.append(Line2D([], [], color=style.GREY, **look))
            labels.append(text)
    if chart.printed_range is not None:
        handles.append(Patch(**_BAND))
        labels.append("printed in the study")
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


_COURSE_COLORS = (
    style.BLUE,
    style.VERMILLION,
    style.GREEN,
    style.PURPLE,
    style.ORANGE,
    style.SKY,
    style.BLACK,
)
_COURSE_STYLES = ("-", "--", ":")
Look = Literal["line", "steps", "dots"]


@dataclass(frozen=True)
class CourseLine:
    """One run: its name, and the values over time."""

    name: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]
    look: Look = "line"
    """Whether each value holds until the next one (steps), or is on its own (dots)."""


def draw_courses(figure: Figure, lines: tuple[CourseLine, ...], y_label: str) -> None:
    """Draws all lines on one time axis."""
    axes = figure.subplots()
    for number, line in enumerate(lines):
        axes.plot(
            line.times_s,
            line.values,
            color=_COURSE_COLORS[number % len(_COURSE_COLORS)],
            linestyle=""
            if line.look == "dots"
            else _COURSE_STYLES[number // len(_COURSE_COLORS) % len(_COURSE_STYLES)],
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


_NAMED_PERCENT = 12.0
"""Smallest share that has room for its number."""
_BAR_WIDTH = 0.82


@dataclass(frozen=True)
class BudgetBars:
    """One row of panels."""

    title: str
    x_label: str
    panels: tuple[tuple[str, tuple[tuple[str, Mapping[str, float]], ...]], ...]
    """Name of each panel, and its bars: the tick label of each, and its parts in %."""
    notes: tuple[str, ...] = ()


def draw_bars(figure: Figure, bars: BudgetBars) -> None:
    """Draws the panels; the parts are stacked in the order of docs/method.md."""
    every = figure.subplots(1, len(bars.panels), sharey=True, squeeze=False)[0]
    seen: set[str] = set()
    for axes, (name, places) in zip(every, bars.panels, strict=True):
        below = [0.0] * len(places)
        for part in PARTS:
            heights = [shares.get(part.name, 0.0) for _, shares in places]
            if not any(heights):
                continue
            seen.add(part.name)
            axes.bar(
                range(len(places)), heights, _BAR_WIDTH, bottom=below, color=part.color, hatch=part.hatch,
                edgecolor="white", linewidth=0.3,
            )  # fmt: skip
            for place, height in enumerate(heights):
                if height >= _NAMED_PERCENT:
                    axes.text(
                        place, below[place] + height / 2, percentage(height / 100), ha="center", va="center",
                        fontsize=7,
                        bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
                    )  # fmt: skip
            below = [low + height for low, height in zip(below, heights, strict=True)]
        axes.set_xticks(range(len(places)), [text for text, _ in places], rotation=60)
        axes.set_xlabel(f"{bars.x_label}: {name}")
        axes.set_ylim(0, 100)
        axes.grid(visible=False, axis="x")
    every[0].set_ylabel("% of a call's time")
    every[0].legend(
        handles=[
            Patch(facecolor=part.color, hatch=part.hatch, edgecolor="white", label=part.label)
            for part in PARTS
            if part.name in seen
        ],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        # the legend must not be wider than its panel
        ncols=max(1, 4 // len(bars.panels)),
        frameon=False,
        borderaxespad=0.3,
    )
