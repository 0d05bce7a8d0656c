"""Throughput, idle fraction and queue depth over time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from iscsitrace.analysis.curves import steps
from iscsitrace.analysis.curves import throughput as curves
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.marks import Array
from iscsitrace.analysis.curves.throughput import Throughput
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.measures import waits
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind, whole_session, with_events
from iscsitrace.plots.scales import ByteAxis, TimeAxis, step_note
from iscsitrace.tables.trace import Trace

_SEEN_SHARE = 1 / 400
"""Smallest height of an area, as a share of the greatest, that can be seen: about a pixel."""


def draw(figure: Figure, throughput: Throughput) -> None:
    """Draws the three panels."""
    rate, idle, depth = figure.subplots(3, 1, sharex=True, height_ratios=(2, 1, 1))
    time = TimeAxis(throughput.view)
    edges = time.of(throughput.edges_ns)
    amounts = ByteAxis(_greatest(throughput))
    below = np.zeros(len(edges) - 1)
    for values, (color, hatch, label) in _areas(throughput):
        if _is_seen(throughput, values):
            height = amounts.of(values)
            rate.stairs(
                below + height, edges, baseline=below, fill=True, color=color, hatch=hatch, edgecolor="white",
                linewidth=0, label=label,
            )  # fmt: skip
            below = below + height
    rate.set_ylabel(f"TCP payload, {amounts.unit}/s")
    rate.set_ylim(bottom=0)
    if throughput.idle_share is None or np.isnan(throughput.idle_share).all():
        style.write_text(idle, "no time breakdown for this view: idle fraction unknown")
    else:
        idle.stairs(
            throughput.idle_share * 100,
            edges,
            baseline=None,
            color=style.VERMILLION,
            linewidth=1.4,
            label="idle fraction",
        )
    idle.set_ylim(0, 103)
    idle.set_ylabel("idle, % of busy time")
    depth.stairs(
        throughput.queue_depth_max,
        edges,
        baseline=None,
        color=style.BLACK,
        linestyle="dotted",
        label="queue depth, maximum",
    )
    depth.stairs(
        throughput.queue_depth_mean, edges, baseline=None, color=style.GREEN, linewidth=1.6, label="queue depth, mean"
    )
    depth.set_ylabel("commands")
    depth.set_ylim(0, max(1.0, float(throughput.queue_depth_max.max())) * 1.12)
    time.apply(depth)
    for axes in (rate, idle):
        axes.tick_params(labelbottom=False)
    style.legend(rate, rate, idle, depth)


def notes(throughput: Throughput) -> list[str]:
    """Lists what the panels omit."""
    found = [step_note(throughput.edges_ns)]
    lengths_s = np.diff(throughput.edges_ns) / 1e9
    for values, (_, _, label) in _areas(throughput):
        if values.any() and not _is_seen(throughput, values):
            found.append(f"not drawn: {int((values * lengths_s).sum()):,} bytes {label}")
    return found


def _areas(throughput: Throughput) -> Iterator[tuple[Array, tuple[str, str, str]]]:
    """Values, and colour, hatch and label."""
    yield throughput.to_initiator_bytes_per_s, (style.BLUE, "", "to the initiator (read data, responses)")
    yield throughput.to_target_bytes_per_s, (style.ORANGE, "//", "to the target (write data, commands)")
    yield throughput.again_bytes_per_s, (style.VERMILLION, "xx", "retransmissions")


def _greatest(throughput: Throughput) -> float:
    return float(np.sum([values for values, _ in _areas(throughput)], axis=0).max())


def _is_seen(throughput: Throughput, values: Array) -> bool:
    return float(values.max()) > _SEEN_SHARE * _greatest(throughput)


def title(throughput: Throughput) -> str:
    """Names what the panels show."""
    return "Throughput, idle fraction and queue depth"


def prepare(trace: Trace, view: View, detail: Detail) -> Throughput:
    """The curves of a view; ``detail`` has no effect."""
    ends_ns = waits.of_trace(trace.table).ends_ns(trace.cycles)
    return curves.prepare(trace.segments, trace.cycles, trace.budget, steps.edges(view), view, ends_ns)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="TCP payload per second, the share of time in which no data is on the line, and the queue depth.",
    tables=with_events("segments", "budget"),
    pictures=whole_session("Throughput"),
    place=1,
)
