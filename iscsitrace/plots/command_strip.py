"""A strip above a plot over time: when each SCSI command was in flight."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes

from iscsitrace.plots import style
from iscsitrace.plots.marks import Array, Spans
from iscsitrace.plots.scales import TimeAxis
from iscsitrace.plots.view import View, seen_cycles
from iscsitrace.tables.nulls import known
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
    """The commands in flight in a view; one of which no end is known lasts until the end of the view."""
    starts, has_end = cycles.raw("command_first_ns"), known(cycles, "end_ns")
    ends = np.where(has_end, cycles.raw("end_ns"), view.end_ns)
    places = np.flatnonzero(seen_cycles(cycles, view, np.where(has_end, ends, starts)))
    seen, starts, ends = cycles.select(places), starts[places], ends[places]
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


_LABEL_SHARE = 0.022
"""Smallest bar, as a share of the width, that has room for its number."""


def draw(axes: Axes, tasks: Tasks, time: TimeAxis) -> None:
    """Draws a bar from command to status; overlapping commands are stacked."""
    time.apply(axes, has_label=False)
    axes.grid(visible=False)
    axes.set_yticks([])
    axes.tick_params(axis="x", bottom=False, labelbottom=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    if tasks.count:
        axes.set_ylabel("commands", rotation=0, ha="right", va="center")
    lane_count = max(tasks.lanes, default=0) + 1
    axes.set_ylim(min(lane_count, LANES), 0)
    if len(tasks.outstanding):
        starts, ends = time.of(tasks.outstanding.starts_ns), time.of(tasks.outstanding.ends_ns)
        axes.broken_barh(
            list(zip(starts, ends - starts, strict=True)), (0, 1), color=style.GREY, label="commands in flight"
        )
        return
    starts, ends = time.of(tasks.spans.starts_ns), time.of(tasks.spans.ends_ns)
    low, high = axes.get_xlim()
    shown = set()
    for cycle, operation, start, end, lane in zip(
        tasks.cycles, tasks.operations, starts, ends, tasks.lanes, strict=True
    ):
        name = operation if operation in style.OPERATION_MARKS else "other command"
        color, hatch = style.operation_mark(operation)[0], "//" if operation == "write" else ""
        axes.barh(
            lane + 0.5, end - start, left=start, height=0.8, color=color, hatch=hatch, edgecolor="white",
            linewidth=0.3, label=name if name not in shown else None,
        )  # fmt: skip
        shown.add(name)
        if lane_count <= 2 and min(end, high) - max(start, low) > _LABEL_SHARE * (high - low):
            middle = (max(start, low) + min(end, high)) / 2
            axes.text(middle, lane + 0.5, str(cycle), ha="center", va="center", color="white", fontsize=7, clip_on=True)
