"""Several taps: mean time of reads and writes in each host and on the network, over time and by I/O size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from iscsitrace.errors import InputInvalid
from iscsitrace.measure.data_commands import is_transfer
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind, view_of_data_commands
from iscsitrace.plots.marks import Array, Detail, even_edges
from iscsitrace.plots.style import TimeAxis
from iscsitrace.plots.view import View, picked_cycles
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording.amounts import count
from iscsitrace.wording.cells import size

PARTS: Final = ("initiator", "network", "target", "held")
"""The hosts without what their TCP held, the network in both directions together, and what TCP held in both hosts.

How the directions share the network's time depends on the clocks; their sum does not.
"""
MOST_BINS: Final = 80
SIZES: Final = 10


@dataclass(frozen=True)
class LegCurves:
    """Mean legs of reads and writes; ns."""

    view: View
    edges_ns: Array
    over_time: Array
    """(PARTS, bins): mean of the commands that began in each bin; 0 without any."""
    by_size: dict[tuple[str, int], Array]
    """By operation and I/O size in bytes, the most frequent: mean of each part."""
    command_count: int
    without_count: int
    """Reads and writes of the view without legs."""


def compute(legs: Table, cycles: Table, view: View) -> LegCurves:
    """The legs of a view; InputInvalid where no read or write has any. ``legs`` has a row per row of ``cycles``."""
    starts = cycles.raw("command_first_ns")
    chosen = picked_cycles(cycles, view) & view.covers(starts) & is_transfer(cycles)
    is_known = ~np.ma.getmaskarray(legs["target_ns"])
    rows = np.flatnonzero(chosen & is_known)
    if not len(rows):
        raise InputInvalid("nothing to draw: no read or write of the view is complete at both taps")
    parts = _parts(legs.select(rows))
    edges = even_edges(view.start_ns, view.end_ns + 1, int(np.clip(len(rows) // 2, 1, MOST_BINS)))
    bins = np.searchsorted(edges, starts[rows], side="right") - 1
    counts = np.bincount(bins, minlength=len(edges) - 1)
    sums = np.array([np.bincount(bins, part, minlength=len(edges) - 1) for part in parts])
    names = zip(cycles["operation"][rows].tolist(), cycles.raw("bytes")[rows].tolist(), strict=True)
    keys, inverse = _grouped(list(names))
    return LegCurves(
        view,
        edges,
        sums / np.maximum(counts, 1),
        {key: parts[:, inverse == place].mean(axis=1) for place, key in enumerate(keys[:SIZES])},
        len(rows),
        int((chosen & ~is_known).sum()),
    )


def _parts(legs: Table) -> Array:
    initiator, out, target, back = (
        legs.raw(f"{name}_ns") for name in ("initiator", "to_target", "target", "to_initiator")
    )
    held = legs.raw("initiator_held_ns"), legs.raw("target_held_ns")
    return np.array([initiator - held[0], out + back, target - held[1], held[0] + held[1]])


def _grouped(names: list[tuple[str, int]]) -> tuple[list[tuple[str, int]], Array]:
    """The distinct names, the most frequent first, and the place of each in them."""
    count: dict[tuple[str, int], int] = {}
    for name in names:
        count[name] = count.get(name, 0) + 1
    keys = sorted(count, key=lambda name: (-count[name], name))
    place = {key: number for number, key in enumerate(keys)}
    return keys, np.array([place[name] for name in names])


# --- drawing


_LOOKS: Final = {
    "initiator": ("initiator's host", "#F0E442", ""),
    "network": ("network, both directions", style.SKY, ""),
    "target": ("target", style.ORANGE, ""),
    "held": ("held by TCP: windows, ACKs, losses", "#8fd6c0", "//"),
}


def draw(figure: Figure, legs: LegCurves) -> None:
    """Draws both panels."""
    over_time, by_size = figure.subplots(1, 2, width_ratios=(2, 1))
    time = TimeAxis(legs.view)
    edges = time.of(legs.edges_ns)
    below = np.zeros(len(edges) - 1)
    names = [f"{operation}\n{size(amount)}" for operation, amount in legs.by_size]
    left = np.zeros(len(names))
    least = style.SEEN_SHARE * max(legs.over_time.sum(axis=0).max(), *(means.sum() for means in legs.by_size.values()))
    for number, part in enumerate(PARTS):
        label, color, hatch = _LOOKS[part]
        height = legs.over_time[number]
        if height.max() < least:
            continue
        below = style.stack(over_time, below, height, edges, color, hatch, label)
        width = np.array([means[number] for means in legs.by_size.values()])
        by_size.bar(range(len(names)), width, bottom=left, color=color, hatch=hatch, edgecolor="white", linewidth=0.4)
        left = left + width
    time.apply(over_time)
    by_size.set_xticks(range(len(names)), names)
    by_size.set_xlabel("I/O size, bytes (K, M of 1024)")
    by_size.grid(visible=False, axis="x")
    for axes in (over_time, by_size):
        axes.set_ylim(bottom=0)
        style.show_durations(axes)
    over_time.set_ylabel("mean latency")
    style.legend(over_time, over_time, columns=3)


def notes(legs: LegCurves) -> list[str]:
    """Lists what the panels omit."""
    if not legs.without_count:
        return []
    return [f"{count(legs.without_count, 'command')} not complete at both taps: not drawn"]


def title(legs: LegCurves) -> str:
    """Names what the panels show."""
    return f"Time of {count(legs.command_count, 'read or write', 'reads and writes')} by place"


def prepare(trace: TraceTables, view: View, detail: Detail) -> LegCurves:
    """The legs of a view; ``detail`` has no effect."""
    return compute(trace.table("legs"), trace.cycles, view)


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
