"""A strip above a plot over time: when each SCSI command was in flight."""

from __future__ import annotations

from matplotlib.axes import Axes

from iscsitrace.analysis.curves.tasks import LANES, Tasks
from iscsitrace.plots import style
from iscsitrace.plots.scales import TimeAxis

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
