"""Several taps: mean time of reads and writes in each host and on the network, over time and by I/O size."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from iscsitrace.analysis.curves import legs as curves
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.legs import LegCurves
from iscsitrace.analysis.curves.view import View
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind, view_of_data_commands
from iscsitrace.plots.scales import TimeAxis, duration, size
from iscsitrace.tables.trace import Trace
from iscsitrace.wording.amounts import count

_LOOKS: Final = {
    "initiator": ("initiator's host", "#F0E442", ""),
    "to_target": ("network to the target", style.SKY, ""),
    "target": ("target", style.ORANGE, ""),
    "to_initiator": ("network to the initiator", style.BLUE, ".."),
    "held": ("held by TCP: windows, ACKs, losses", "#8fd6c0", "//"),
}
_SEEN_SHARE: Final = 1 / 400
"""Smallest height of an area, as a share of the greatest, that can be seen: about a pixel."""


def draw(figure: Figure, legs: LegCurves) -> None:
    """Draws both panels."""
    over_time, by_size = figure.subplots(1, 2, width_ratios=(2, 1))
    time = TimeAxis(legs.view)
    edges = time.of(legs.edges_ns)
    below = np.zeros(len(edges) - 1)
    names = [f"{operation}\n{size(amount)}" for operation, amount in legs.by_size]
    left = np.zeros(len(names))
    least = _SEEN_SHARE * max(legs.over_time.sum(axis=0).max(), *(means.sum() for means in legs.by_size.values()))
    for number, part in enumerate(curves.PARTS):
        label, color, hatch = _LOOKS[part]
        height = legs.over_time[number]
        if height.max() < least:
            continue
        over_time.stairs(
            below + height, edges, baseline=below, fill=True, color=color, hatch=hatch, edgecolor="white", linewidth=0,
            label=label,
        )  # fmt: skip
        below = below + height
        width = np.array([means[number] for means in legs.by_size.values()])
        by_size.bar(range(len(names)), width, bottom=left, color=color, hatch=hatch, edgecolor="white", linewidth=0.4)
        left = left + width
    time.apply(over_time)
    by_size.set_xticks(range(len(names)), names)
    by_size.set_xlabel("I/O size, bytes (K, M of 1024)")
    by_size.grid(visible=False, axis="x")
    for axes in (over_time, by_size):
        _scale(axes)
    over_time.set_ylabel("mean latency")
    style.legend(over_time, over_time, columns=3)


def _scale(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value) if value else "0"))


def notes(legs: LegCurves) -> list[str]:
    """Lists what the panels omit."""
    if not legs.without_count:
        return []
    return [f"{count(legs.without_count, 'command')} not complete at both taps: not drawn"]


def title(legs: LegCurves) -> str:
    """Names what the panels show."""
    return f"Time of {count(legs.command_count, 'read or write', 'reads and writes')} by place"


def prepare(trace: Trace, view: View, detail: Detail) -> LegCurves:
    """The legs of a view; ``detail`` has no effect."""
    return curves.prepare(trace.table("legs"), trace.cycles, view)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="The colour that takes most of the height is the place that takes most of the time.",
    view=view_of_data_commands,
    has_timeline=False,
    is_of_taps=True,
    place=8,
)
