"""Volumes over time: the mean latency of each volume's commands, and its outages, in equal bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups import volumes
from iscsitrace.analysis.groups.volumes import Volume
from iscsitrace.analysis.measures import waits
from iscsitrace.analysis.measures.data_commands import is_data_command
from iscsitrace.analysis.measures.intervals import Span, covered_until
from iscsitrace.tables.table import Source

Array = NDArray[Any]


@dataclass(frozen=True)
class Heat:
    """The volumes in their order: by outage, then by the sum of their latencies."""

    volumes: tuple[Volume, ...]
    edges_ns: Array
    """int64 instants, one more than bins."""
    counts: Array
    """Commands that began in each bin, shape (volumes, bins)."""
    latency_ns: Array
    """Mean of their latencies, and of the waits of those without a status; NaN where none is known. The same shape."""
    outage_ns: Array
    """How long the volume was out. The same shape."""
    more_count: int
    """Volumes with commands that are beyond the limit."""


def find(source: Source, outages: Mapping[int, Sequence[Span]], *, limit: int, bin_count: int) -> Heat | None:
    """The ``limit`` worst volumes; ``outages`` are those of each volume by its number. None without a command."""
    cycles = source("cycles")
    found = volumes.find(source)
    numbers = np.where(cycles.each(is_data_command), found.of_commands(cycles), -1)
    rows = np.flatnonzero(numbers >= 0)
    if not len(rows):
        return None
    waited = waits.of_trace(source)
    starts_ns, least_ns, numbers = cycles.raw("command_first_ns")[rows], waited.least_ns[rows], numbers[rows]
    is_timed = least_ns != waits.UNKNOWN
    lasted_ns = np.where(is_timed, least_ns, 0)
    edges_ns = _edges(int(starts_ns.min()), int((starts_ns + lasted_ns).max()), bin_count)
    sums_ns = np.bincount(numbers, weights=lasted_ns, minlength=len(found.all))
    used = np.flatnonzero(np.bincount(numbers, minlength=len(found.all)))
    out_ns = {number: sum(last - first for first, last in outages.get(number, ())) for number in used.tolist()}
    order = sorted(used.tolist(), key=lambda number: (-out_ns[number], -sums_ns[number], number))[:limit]
    place = np.full(len(found.all), -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    which = place[numbers] >= 0
    column = np.searchsorted(edges_ns, starts_ns[which], side="right").clip(1, bin_count) - 1
    cell, shape = place[numbers[which]] * bin_count + column, (len(order), bin_count)
    counts = np.bincount(cell, minlength=shape[0] * bin_count).reshape(shape)
    timed = np.bincount(cell, weights=is_timed[which], minlength=shape[0] * bin_count).reshape(shape)
    total_ns = np.bincount(cell, weights=lasted_ns[which], minlength=shape[0] * bin_count).reshape(shape)
    return Heat(
        tuple(found.all[number] for number in order),
        edges_ns,
        counts,
        np.divide(total_ns, timed, out=np.full(shape, np.nan), where=timed > 0),
        np.stack([_outage(outages.get(number, ()), edges_ns) for number in order]),
        len(used) - len(order),
    )


def _edges(first_ns: int, last_ns: int, bin_count: int) -> Array:
    """Equal bins up to a nanosecond; the last one may end later."""
    width_ns = max(-(-(last_ns - first_ns) // bin_count), 1)
    return first_ns + width_ns * np.arange(bin_count + 1)


def _outage(spans: Sequence[Span], edges_ns: Array) -> Array:
    starts, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    return np.diff(covered_until(starts, ends, edges_ns))
