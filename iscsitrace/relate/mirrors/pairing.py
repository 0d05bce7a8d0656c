"""Requests of two sides, paired by extent and time: a kernel may split or merge them differently on each side.

The requests of both sides are split at every edge that either has; pieces of the same extent are paired in order of
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.intervals import covered_until, merged
from iscsitrace.relate.mirrors.sides import Requests

Array = NDArray[Any]

AT_ONCE: Final = 0.25
"""Share of the longer request's time within which both begin: a host issues both at once, but sends one after the
other. Of unrelated programs half would begin that close together by chance."""
BUSY: Final = 0.9
"""Share of the time between both starts for which the later side needs to be busy for its queue to explain it."""
PER_PERIOD: Final = 8
"""Mean number of pairs per busy period of both sides up to which overlap is enough: the host waited for both before it
went on. Unrelated programs do not wait for each other."""
PIECES_MAX: Final = 64
"""Pieces per request, on average, beyond which the extents show nothing."""


@dataclass(frozen=True)
class Pairing:
    """Which requests of one side belong to which of the other."""

    one: Array
    """Index of one side's request, for each pair of pieces."""
    other: Array
    """Index of the other side's request."""
    lengths: Array
    """Bytes of the piece."""

    def matched_bytes(self, count: int, *, of_other: bool = False) -> Array:
        """Bytes of each of the ``count`` requests that have a counterpart."""
        sums = np.bincount(self.other if of_other else self.one, weights=self.lengths, minlength=count)
        return sums.astype(np.int64)


def pair(one: Requests, other: Requests) -> Pairing:
    """Pairs of pieces that cover the same bytes at the same time."""
    edges = np.unique(np.concatenate([one.firsts, one.lasts, other.firsts, other.lasts]))
    cut, other_cut = _cut(one, edges), _cut(other, edges)
    if cut is None or other_cut is None:
        nothing = np.empty(0, dtype=np.int64)
        return Pairing(nothing, nothing, nothing)
    (owner, piece), (other_owner, other_piece) = cut, other_cut
    left, right = _in_order(piece, one.begins[owner], other_piece, other.begins[other_owner])
    a, b = owner[left], other_owner[right]
    keep = is_at_once(one, a, other, b) | _is_waited_for(one, a, other, b)
    far = np.flatnonzero(~keep)
    keep[far] = _is_queued(one, a[far], other, b[far])
    lengths = np.diff(edges)[piece[left]]
    return Pairing(a[keep], b[keep], lengths[keep])


def _cut(requests: Requests, edges: Array) -> tuple[Array, Array] | None:
    """Request and number of each piece; None where there are too many."""
    first, last = np.searchsorted(edges, requests.firsts), np.searchsorted(edges, requests.lasts)
    counts = last - first
    total = int(counts.sum())
    if total > PIECES_MAX * max(len(requests), PIECES_MAX):
        return None
    owner = np.repeat(np.arange(len(requests)), counts)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    return owner, np.repeat(first, counts) + np.arange(total) - before


def _in_order(piece: Array, times: Array, other_piece: Array, other_times: Array) -> tuple[Array, Array]:
    """Pairs of pieces with the same number: in order where both sides have as many; else the nearest in time, if each
    is the nearest of the other.
    """
    order, other_order = np.lexsort((times, piece)), np.lexsort((other_times, other_piece))
    size = int(max(piece.max(initial=-1), other_piece.max(initial=-1))) + 1
    counts, other_counts = np.bincount(piece, minlength=size), np.bincount(other_piece, minlength=size)
    is_even = counts == other_counts
    left, right = order[is_even[piece[order]]], other_order[is_even[other_piece[other_order]]]
    is_odd = ~is_even & (counts > 0) & (other_counts > 0)
    rest, other_rest = order[is_odd[piece[order]]], other_order[is_odd[other_piece[other_order]]]
    if not len(rest):
        return left, right
    there = _nearest(piece[rest], times[rest], other_piece[other_rest], other_times[other_rest])
    back = _nearest(other_piece[other_rest], other_times[other_rest], piece[rest], times[rest])
    is_mutual = back[there] == np.arange(len(rest))
    return np.concatenate([left, rest[is_mutual]]), np.concatenate([right, other_rest[there[is_mutual]]])


def _nearest(piece: Array, times: Array, other_piece: Array, other_times: Array) -> Array:
    """Index of the nearest in time among the sorted others of the same number, of which there is at least one."""
    # one key for number and time, with the rank of the time
    ranks = np.unique(np.concatenate([times, other_times]))
    step = len(ranks)
    keys = piece.astype(np.int64) * step + np.searchsorted(ranks, times)
    other_keys = other_piece.astype(np.int64) * step + np.searchsorted(ranks, other_times)
    after = np.searchsorted(other_keys, keys).clip(max=len(other_keys) - 1)
    before = np.maximum(after - 1, 0)

    def distance(place: Array) -> Array:
        apart = np.abs(other_times[place] - times)
        return np.where(other_piece[place] == piece, apart, np.iinfo(np.int64).max)

    return np.asarray(np.where(distance(before) <= distance(after), before, after))


def is_at_once(one: Requests, a: Array, other: Requests, b: Array) -> Array:
    """Which pairs begin within a small share of the longer one's time."""
    longer = np.maximum(one.ends[a] - one.begins[a], other.ends[b] - other.begins[b])
    return np.asarray(np.abs(one.begins[a] - other.begins[b]) <= AT_ONCE * longer)


def _is_waited_for(one: Requests, a: Array, other: Requests, b: Array) -> Array:
    """Which pairs overlap, where both sides pause together every few requests."""
    overlaps = np.minimum(one.ends[a], other.ends[b]) > np.maximum(one.begins[a], other.begins[b])
    if not overlaps.any():
        return np.asarray(overlaps)
    # a command at the instant of a status is the next one
    ends = np.concatenate([one.ends, other.ends]) - 1
    periods, _ = merged(np.concatenate([one.begins, other.begins]), ends)
    count = len(np.unique(np.stack([a[overlaps], b[overlaps]]), axis=1).T)
    return np.asarray(overlaps & (count <= PER_PERIOD * len(periods)))


def _is_queued(one: Requests, a: Array, other: Requests, b: Array) -> Array:
    """Which pairs begin apart because the later side's queue was full: it had several requests in flight, was busy
    without a break, and kept the order.
    """
    found = np.zeros(len(a), dtype=bool)
    for is_later, earlier, later, first, then in (
        (other.begins[b] > one.begins[a], one, other, a, b),
        (one.begins[a] > other.begins[b], other, one, b, a),
    ):
        places = np.flatnonzero(is_later)
        if not len(places):
            continue
        since, until = earlier.begins[first[places]], later.begins[then[places]]
        starts, ends = merged(later.begins, later.ends)
        busy = covered_until(starts, ends, until) - covered_until(starts, ends, since)
        is_full = (busy >= BUSY * (until - since)) & (later.depths[then[places]] > 1)
        kept = places[is_full][np.argsort(since[is_full], kind="stable")]
        begun = later.begins[then[kept]]
        if len(kept) > 1 and np.mean(np.diff(begun) >= 0) >= BUSY:
            found[kept] = True
    return found
