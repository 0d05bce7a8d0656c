"""Throughput, idle fraction and queue depth over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import waits
from iscsitrace.plots import steps, style
from iscsitrace.plots.kind import Kind, whole_session, with_events
from iscsitrace.plots.kinds.time_breakdown import idle_share
from iscsitrace.plots.marks import Array, Detail, chunks
from iscsitrace.plots.style import ByteAxis, TimeAxis, step_note
from iscsitrace.plots.view import View, picked_cycles
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class ThroughputCurves:
    """A value per step; ``edges_ns`` has one value more."""

    view: View
    edges_ns: Array
    to_target_bytes_per_s: Array
    to_initiator_bytes_per_s: Array
    again_bytes_per_s: Array
    """Retransmissions of both directions."""
    queue_depth_mean: Array
    queue_depth_max: Array
    idle_share: Array | None
    """Share of the I/O time without transfer, NaN without busy time; None: no time breakdown."""


def compute(
    segments: Table, cycles: Table, budget: Table, edges_ns: Array, view: View, ends_ns: Array | None = None
) -> ThroughputCurves:
    """The steps of a view; InputInvalid where it has no payload.

    ``ends_ns`` is when each command was last in flight; else those without a status are not counted.
    """
    boundaries = steps.of_connections(cycles, budget, view.connections, edges_ns)
    sent = _bytes(segments, boundaries, edges_ns)
    if not any(each.any() for each in sent.values()):
        raise InputInvalid("nothing to draw: no payload passed the tap in the view")
    lengths_ns = np.diff(edges_ns)
    mean, greatest = _queue_depths(cycles, boundaries, edges_ns, view, ends_ns)
    return ThroughputCurves(
        view=view,
        edges_ns=edges_ns,
        to_target_bytes_per_s=sent["to_target"] * _SECOND_NS / lengths_ns,
        to_initiator_bytes_per_s=sent["to_initiator"] * _SECOND_NS / lengths_ns,
        again_bytes_per_s=sent["again"] * _SECOND_NS / lengths_ns,
        queue_depth_mean=mean,
        queue_depth_max=greatest,
        idle_share=idle_share(budget, cycles, edges_ns, view),
    )


def _bytes(segments: Table, boundaries: dict[int, Array], edges_ns: Array) -> dict[str, Array]:
    """Payload by step: of each direction, and of retransmissions."""
    found = {name: np.zeros(len(edges_ns) - 1) for name in ("to_target", "to_initiator", "again")}
    sums = {number: np.zeros((len(found), len(each) - 1)) for number, each in boundaries.items()}
    for rows in chunks(len(segments)):
        for number, places in grouped(segments.raw("connection")[rows]).items():
            if number in boundaries:
                _add_bytes(sums[number], segments, rows.start + places, boundaries[number])
    for number, each in sums.items():
        for name, amounts in zip(found, steps.spread(each, boundaries[number], edges_ns), strict=True):
            found[name] += amounts
    return found


def _add_bytes(sums: Array, segments: Table, places: Array, boundaries_ns: Array) -> None:
    """Adds the payload of these segments of a connection between boundaries: rows of ``sums`` as in ``_bytes``."""
    again, copy = (CATEGORIES["segment_class"].index(word) for word in ("retransmission", "copy"))
    times, codes = segments.raw("time_ns")[places], segments.raw("segment_class")[places]
    keep = (times >= boundaries_ns[0]) & (times <= boundaries_ns[-1]) & (codes != copy)
    is_again, to_target = codes == again, segments.raw("to_target")[places]
    for sum_of, which in zip(sums, (to_target & ~is_again, ~to_target & ~is_again, is_again), strict=True):
        chosen = keep & which
        bins = np.minimum(np.searchsorted(boundaries_ns, times[chosen], side="right"), len(boundaries_ns) - 1) - 1
        lengths = segments.raw("payload_bytes")[places][chosen]
        np.add(sum_of, np.bincount(bins, weights=lengths, minlength=len(sum_of)), out=sum_of)


def _queue_depths(
    cycles: Table, boundaries: dict[int, Array], edges_ns: Array, view: View, ends_ns: Array | None
) -> tuple[Array, Array]:
    """Commands in flight per step: mean over time, and maximum."""
    is_picked = picked_cycles(cycles, view)
    if ends_ns is None:
        is_picked &= known(cycles, "status_ns")
        ends_ns = cycles.raw("status_ns")
    picked, ends = cycles.select(is_picked), ends_ns[is_picked]
    starts = np.minimum(picked.raw("command_first_ns"), ends)
    in_flight_ns = np.zeros(len(edges_ns) - 1)
    for number, places in grouped(picked.raw("connection")).items():
        instants = boundaries[number]
        mean, _ = mean_and_max(starts[places], ends[places], instants)
        in_flight_ns += steps.spread(mean * np.diff(instants), instants, edges_ns)
    return in_flight_ns / np.diff(edges_ns), mean_and_max(starts, ends, edges_ns)[1]


def mean_and_max(starts_ns: Array, ends_ns: Array, edges_ns: Array) -> tuple[Array, Array]:
    """Number of half-open spans that cover an instant: mean and maximum of each bin."""
    instants = np.concatenate([starts_ns, ends_ns, edges_ns])
    steps = np.concatenate([np.ones(len(starts_ns)), -np.ones(len(ends_ns)), np.zeros(len(edges_ns))])
    order = np.lexsort((steps, instants))
    instants, depth = instants[order], np.cumsum(steps[order]).astype(np.int64)
    # the depth after each instant holds until the next one
    held_ns = np.diff(instants, append=instants[-1])
    bins = np.searchsorted(edges_ns, instants, side="right") - 1
    inside = (bins >= 0) & (bins < len(edges_ns) - 1) & (held_ns > 0)
    covered_ns = np.bincount(bins[inside], weights=(depth * held_ns)[inside], minlength=len(edges_ns) - 1)
    greatest = np.zeros(len(edges_ns) - 1, dtype=np.int64)
    np.maximum.at(greatest, bins[inside], depth[inside])
    return covered_ns / np.diff(edges_ns), greatest


# --- drawing


def draw(figure: Figure, throughput: ThroughputCurves) -> None:
    """Draws the three panels."""
    rate, idle, depth = figure.subplots(3, 1, sharex=True, height_ratios=(2, 1, 1))
    time = TimeAxis(throughput.view)
    edges = time.of(throughput.edges_ns)
    amounts = ByteAxis(_greatest(throughput))
    below = np.zeros(len(edges) - 1)
    for values, (color, hatch, label) in _areas(throughput):
        if _is_seen(throughput, values):
            below = style.stack(rate, below, amounts.of(values), edges, color, hatch, label)
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
    idle.set_ylabel("idle, % of I/O time")
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


def notes(throughput: ThroughputCurves) -> list[str]:
    """Lists what the panels omit."""
    found = [step_note(throughput.edges_ns)]
    lengths_s = np.diff(throughput.edges_ns) / 1e9
    for values, (_, _, label) in _areas(throughput):
        if values.any() and not _is_seen(throughput, values):
            found.append(f"not drawn: {int((values * lengths_s).sum()):,} bytes {label}")
    return found


def _areas(throughput: ThroughputCurves) -> Iterator[tuple[Array, tuple[str, str, str]]]:
    """Values, and colour, hatch and label."""
    yield throughput.to_initiator_bytes_per_s, (style.BLUE, "", "to the initiator (read data, responses)")
    yield throughput.to_target_bytes_per_s, (style.ORANGE, "//", "to the target (write data, commands)")
    yield throughput.again_bytes_per_s, (style.VERMILLION, "xx", "retransmissions")


def _greatest(throughput: ThroughputCurves) -> float:
    return float(np.sum([values for values, _ in _areas(throughput)], axis=0).max())


def _is_seen(throughput: ThroughputCurves, values: Array) -> bool:
    return float(values.max()) > style.SEEN_SHARE * _greatest(throughput)


def title(throughput: ThroughputCurves) -> str:
    """Names what the panels show."""
    return "Throughput, idle fraction and queue depth"


def prepare(trace: TraceTables, view: View, detail: Detail) -> ThroughputCurves:
    """The curves of a view; ``detail`` has no effect."""
    ends_ns = waits.of_trace(trace.table).ends_ns(trace.cycles)
    return compute(trace.segments, trace.cycles, trace.budget, steps.edges(view), view, ends_ns)


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
