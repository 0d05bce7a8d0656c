"""Payload per second, idle fraction and queue depth in equal bins of time.

Payload is the TCP payload that passed the tap, with iSCSI headers. Retransmissions are counted separately.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iscsitrace.analysis.curves.decimation import chunks, even_edges
from iscsitrace.analysis.curves.marks import Array
from iscsitrace.analysis.curves.view import View, picked_cycles
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table

BINS = 200
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Throughput:
    """A value per bin; ``edges_ns`` has one value more."""

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


def prepare(segments: Table, cycles: Table, idle_share: Array | None, edges_ns: Array, view: View) -> Throughput:
    """The bins of a view; ``idle_share`` comes from the time breakdown."""
    sent = _bytes_by_bin(segments, edges_ns, view)
    if not any(each.any() for each in sent.values()):
        raise InputInvalid("nothing to draw: no payload passed the tap in the view")
    lengths_ns = np.diff(edges_ns)
    mean, greatest = _queue_depths(cycles, edges_ns, view)
    return Throughput(
        view=view,
        edges_ns=edges_ns,
        to_target_bytes_per_s=sent["to_target"] * _SECOND_NS / lengths_ns,
        to_initiator_bytes_per_s=sent["to_initiator"] * _SECOND_NS / lengths_ns,
        again_bytes_per_s=sent["again"] * _SECOND_NS / lengths_ns,
        queue_depth_mean=mean,
        queue_depth_max=greatest,
        idle_share=idle_share,
    )


def edges(view: View, bins: int = BINS) -> Array:
    """The edges of the bins of a view."""
    return even_edges(view.start_ns, view.end_ns, bins)


def _bytes_by_bin(segments: Table, edges_ns: Array, view: View) -> dict[str, Array]:
    """Payload by bin: of each direction, and of retransmissions."""
    again, copy = (CATEGORIES["segment_class"].index(word) for word in ("retransmission", "copy"))
    found = {name: np.zeros(len(edges_ns) - 1) for name in ("to_target", "to_initiator", "again")}
    for rows in chunks(len(segments)):
        times, codes = segments.raw("time_ns")[rows], segments.raw("segment_class")[rows]
        keep = (times >= edges_ns[0]) & (times <= edges_ns[-1]) & (codes != copy)
        keep &= np.isin(segments.raw("connection")[rows], view.connections)
        is_again, to_target = codes == again, segments.raw("to_target")[rows]
        for name, which in (
            ("to_target", to_target & ~is_again),
            ("to_initiator", ~to_target & ~is_again),
            ("again", is_again),
        ):
            chosen = keep & which
            bins = np.minimum(np.searchsorted(edges_ns, times[chosen], side="right"), len(edges_ns) - 1) - 1
            lengths = segments.raw("payload_bytes")[rows][chosen]
            found[name] += np.bincount(bins, weights=lengths, minlength=len(edges_ns) - 1)
    return found


def _queue_depths(cycles: Table, edges_ns: Array, view: View) -> tuple[Array, Array]:
    """Commands in flight, from command to status, per bin: mean over time, and maximum."""
    picked = cycles.select(picked_cycles(cycles, view))
    status = np.ma.asarray(picked["status_ns"])
    is_known = ~np.ma.getmaskarray(status)
    starts, ends = picked.raw("command_first_ns")[is_known], np.ma.getdata(status)[is_known]
    return mean_and_max(np.minimum(starts, ends), ends, edges_ns)


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
