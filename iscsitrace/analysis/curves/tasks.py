"""SCSI commands as bars over time, in lanes where several are in flight."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from iscsitrace.analysis.curves.marks import Array, Spans
from iscsitrace.analysis.curves.view import View, seen_cycles
from iscsitrace.tables.table import Table

LANES = 4
TASK_LIMIT = 300
"""Commands up to which each has a bar; more are joined into the stretches in which any was in flight."""


@dataclass(frozen=True)
class Tasks:
    """Commands of a view: number, operation, time from command to status, and lane, counted from 0.

    ``outstanding`` replaces them where there are too many.
    """

    cycles: tuple[int, ...] = ()
    operations: tuple[str, ...] = ()
    spans: Spans = field(default_factory=Spans)
    lanes: tuple[int, ...] = ()
    outstanding: Spans = field(default_factory=Spans)
    count: int = 0


def of_view(cycles: Table, view: View) -> Tasks:
    """The commands in flight in a view; one without a status lasts until the end of the view."""
    seen = cycles.select(seen_cycles(cycles, view))
    starts = seen.raw("command_first_ns")
    status = np.ma.asarray(seen["status_ns"])
    ends = np.where(np.ma.getmaskarray(status), view.end_ns, np.ma.getdata(status))
    if len(seen) > TASK_LIMIT:
        return Tasks(outstanding=union(starts, ends, view), count=len(seen))
    return Tasks(
        cycles=tuple(seen.raw("cycle").tolist()),
        operations=tuple(word or "unknown" for word in seen["operation"].tolist()),
        spans=Spans(starts, ends),
        lanes=_lanes(starts, ends),
        count=len(seen),
    )


def union(starts_ns: Array, ends_ns: Array, view: View) -> Spans:
    """The stretches that at least one span covers; gaps of less than a pixel are closed."""
    pixel_ns = (view.end_ns - view.start_ns) // 2000
    order = np.argsort(starts_ns, kind="stable")
    starts, reached = starts_ns[order], np.maximum.accumulate(ends_ns[order])
    is_first = np.ones(len(starts), dtype=bool)
    is_first[1:] = starts[1:] > reached[:-1] + pixel_ns
    is_last = np.append(is_first[1:], True)
    return Spans(starts[is_first], reached[is_last])


def _lanes(starts_ns: Array, ends_ns: Array) -> tuple[int, ...]:
    """The first free lane at the start of each span; else the last lane."""
    free_ns = [np.iinfo(np.int64).min] * LANES
    lanes = []
    for start, end in zip(starts_ns.tolist(), ends_ns.tolist(), strict=True):
        lane = next((number for number, until in enumerate(free_ns) if until <= start), LANES - 1)
        free_ns[lane] = max(free_ns[lane], end)
        lanes.append(lane)
    return tuple(lanes)
