"""The legs of commands over time and by I/O size: means of the time in each place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from iscsitrace.analysis.curves.decimation import even_edges
from iscsitrace.analysis.curves.marks import Array
from iscsitrace.analysis.curves.view import View, picked_cycles
from iscsitrace.analysis.measures.data_commands import is_transfer
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table

PARTS: Final = ("initiator", "to_target", "target", "to_initiator", "held")
"""The hosts without what their TCP held, both ways, and what TCP held in both hosts."""
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


def prepare(legs: Table, cycles: Table, view: View) -> LegCurves:
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
    initiator, out, target, back = (legs.raw(f"{name}_ns") for name in PARTS[:4])
    held = legs.raw("initiator_held_ns"), legs.raw("target_held_ns")
    return np.array([initiator - held[0], out, target - held[1], back, held[0] + held[1]])


def _grouped(names: list[tuple[str, int]]) -> tuple[list[tuple[str, int]], Array]:
    """The distinct names, the most frequent first, and the place of each in them."""
    count: dict[tuple[str, int], int] = {}
    for name in names:
        count[name] = count.get(name, 0) + 1
    keys = sorted(count, key=lambda name: (-count[name], name))
    place = {key: number for number, key in enumerate(keys)}
    return keys, np.array([place[name] for name in names])
