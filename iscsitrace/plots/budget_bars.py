"""The time breakdown of calls as bars over a setting, one panel for each arm of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from iscsitrace.wording.amounts import percentage
from iscsitrace.wording.parts import PARTS

_NAMED_PERCENT = 12.0
"""Smallest share that has room for its number."""
_WIDTH = 0.82


@dataclass(frozen=True)
class BudgetBars:
    """One row of panels."""

    title: str
    x_label: str
    panels: tuple[tuple[str, tuple[tuple[str, Mapping[str, float]], ...]], ...]
    """Name of each panel, and its bars: the tick label of each, and its parts in %."""
    notes: tuple[str, ...] = ()


def draw(figure: Figure, bars: BudgetBars) -> None:
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
                range(len(places)), heights, _WIDTH, bottom=below, color=part.color, hatch=part.hatch,
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
