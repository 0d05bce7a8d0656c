"""The heat map of volumes over time: a row for each, a color for latency, a pattern for outages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from iscsitrace.analysis.curves import volume_heat
from iscsitrace.analysis.curves.volume_heat import Heat
from iscsitrace.analysis.diagnosis.examination import Diagnosis
from iscsitrace.outputs.document import more_rows
from iscsitrace.report.document import HeatCell, HeatMap, HeatRow
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import amounts, cells

ROWS: Final = 24
BINS: Final = 48
"""Columns: they fit a page of 400 pixels beside the names."""
STEPS: Final = 6
"""Colors of latencies."""
_DIGITS: Final = (1, 2, 5)


def of_trace(trace: Trace, diagnosis: Diagnosis) -> HeatMap | None:
    """The heat map; None of fewer than two volumes: plots show one."""
    heat = volume_heat.find(trace.table, diagnosis.volume_outages, limit=ROWS, bin_count=BINS)
    if heat is None or len(heat.volumes) < 2:
        return None
    start_ns = int(trace.connections.raw("time_first_ns").min())
    bounds = _bounds([each for row in heat.latency_ns.tolist() for each in row if not math.isnan(each)])
    edges = [amounts.seconds(each - start_ns) for each in heat.edges_ns.tolist()]
    return HeatMap(
        times=(edges[0], edges[BINS // 2], edges[-1]),
        width=amounts.time(int(heat.edges_ns[1] - heat.edges_ns[0])),
        legend=_legend(bounds),
        rows=tuple(_row(heat, place, bounds, edges) for place in range(len(heat.volumes))),
        notes=more_rows(heat.more_count),
    )


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
