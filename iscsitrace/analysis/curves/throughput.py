"""Payload per second, idle fraction and queue depth in equal steps of time.

Payload is the TCP payload that passed the tap, with iSCSI headers. Retransmissions are counted separately.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iscsitrace.analysis.curves import steps
from iscsitrace.analysis.curves.budget import idle_share
from iscsitrace.analysis.curves.decimation import chunks
from iscsitrace.analysis.curves.marks import Array
from iscsitrace.analysis.curves.view import View, picked_cycles
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Throughput:
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
    """Share of the busy time without transfer, NaN without busy time; None: no time breakdown."""


def prepare(
    segments: Table, cycles: Table, budget: Table, edges_ns: Array, view: View, ends_ns: Array | None = None
) -> Throughput:
    """The steps of a view; InputInvalid where it has no payload.

    ``ends_ns`` is when each command was last in flight; else those without a status are not counted.
    """
    boundaries = steps.of_connections(cycles, budget, view.connections, edges_ns)
    sent = _bytes(segments, boundaries, edges_ns)
    if not any(each.any() for each in sent.values()):
        raise InputInvalid("nothing to draw: no payload passed the tap in the view")
    lengths_ns = np.diff(edges_ns)
    mean, greatest = _queue_depths(cycles, boundaries, edges_ns, view, ends_ns)
    return Throughput(
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
        for number, places in steps.grouped(segments.raw("connection")[rows]).items():
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
    for number, places in steps.grouped(picked.raw("connection")).items():
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
