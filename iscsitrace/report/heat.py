"""The heat map of volumes over time: a row for each, a color for latency, a pattern for outages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from iscsitrace.diagnosis.examination import Diagnosis
from iscsitrace.measure import waits
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.intervals import Span, covered_until
from iscsitrace.relate import volumes
from iscsitrace.relate.volumes import Volume
from iscsitrace.show.document import HeatCell, HeatMap, HeatRow, Section, more_rows
from iscsitrace.tables.table import Array, Source
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import amounts, cells


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


ROWS: Final = 24
BINS: Final = 48
"""Columns: they fit a page of 400 pixels beside the names."""
STEPS: Final = 6
"""Colors of latencies."""
_DIGITS: Final = (1, 2, 5)


def of_trace(trace: TraceTables, diagnosis: Diagnosis) -> Iterator[Section]:
    """The section of the heat map; nothing of fewer than two volumes: plots show one."""
    heat = find(trace.table, diagnosis.volume_outages, limit=ROWS, bin_count=BINS)
    if heat is None or len(heat.volumes) < 2:
        return
    start_ns = trace.start_ns
    bounds = _bounds([each for row in heat.latency_ns.tolist() for each in row if not math.isnan(each)])
    edges = [amounts.seconds(each - start_ns) for each in heat.edges_ns.tolist()]
    drawn = HeatMap(
        times=(edges[0], edges[BINS // 2], edges[-1]),
        width=amounts.time(int(heat.edges_ns[1] - heat.edges_ns[0])),
        legend=_legend(bounds),
        rows=tuple(_row(heat, place, bounds, edges) for place in range(len(heat.volumes))),
        notes=more_rows(heat.more_count),
    )
    yield Section("Volumes over time", (drawn,), "heat")


def _bounds(latencies_ns: Sequence[float]) -> list[int]:
    """Latencies between the colors: 1, 2 or 5 times a power of ten, few enough for STEPS colors."""
    low, high = min(latencies_ns, default=1.0), max(latencies_ns, default=1.0)
    every = [digit * 10**power for power in range(19) for digit in _DIGITS]
    within = [each for each in every if low < each <= high]
    stride = -(-len(within) // (STEPS - 1)) or 1
    # the largest latencies are told apart best
    return within[::-1][::stride][::-1]


def _legend(bounds: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """Class and meaning of each color."""
    texts = [amounts.time(each) for each in bounds]
    between = [f"{low} to {high}" for low, high in pairwise(texts)]
    steps = [f"mean latency below {texts[0]}", *between, f"{texts[-1]} or more"] if texts else ["mean latency"]
    colors = [(_color(place, bounds), text) for place, text in enumerate(steps)]
    return (*colors, ("out", "outage"), ("", "no command"))


def _color(place: int, bounds: Sequence[int]) -> str:
    """Class of the color of latencies that reach so many of the bounds; a few of them differ as much as many."""
    return f"h{1 + (STEPS - 1) * place // max(len(bounds), 1)}"


def _row(heat: Heat, place: int, bounds: Sequence[int], edges: Sequence[str]) -> HeatRow:
    volume, out_ns = heat.volumes[place], heat.outage_ns[place].tolist()
    columns = zip(heat.counts[place].tolist(), heat.latency_ns[place].tolist(), out_ns, strict=True)
    return HeatRow(
        cells.short(volume.label),
        cells.short(volume.host),
        cells.seconds(sum(out_ns) or None),
        tuple(
            _cell(count, latency_ns, lost_ns, bounds, f"{edges[column]} to {edges[column + 1]}")
            for column, (count, latency_ns, lost_ns) in enumerate(columns)
        ),
    )


def _cell(count: int, latency_ns: float, lost_ns: int, bounds: Sequence[int], when: str) -> HeatCell:
    words = [amounts.count(count, "command")] if count else []
    kind = ""
    if not math.isnan(latency_ns):
        words.append(f"mean latency {amounts.time(latency_ns)}")
        kind = _color(sum(latency_ns >= each for each in bounds), bounds)
    if lost_ns:
        words.append(f"out for {amounts.time(lost_ns)}")
        kind = "out"
    return HeatCell(kind, f"{when}: {', '.join(words) or 'no command'}")
