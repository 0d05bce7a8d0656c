"""Requests of two sides: possible offsets between their addresses, and pairs by extent and time.

Most mirrors have the same addresses; else the commonest offset of neighbors in time, or that of the lowest addresses.
Of ten thousand sessions thousands of pairs are looked at, and hardly one is a mirror. A kernel may split or merge
requests differently on each side, so they are split at every edge that either has; pieces of the same extent are paired
in order of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import by_subject
from iscsitrace.measure.intervals import covered_until, furthest, merged
from iscsitrace.relate.mirrors.sides import Requests
from iscsitrace.tables.numbers import first_rows, order_of

Array = NDArray[Any]
Pair = tuple[Requests, Requests]

WRITES_MIN: Final = 4
"""Writes on both sides that it takes: fewer may coincide by chance, or be what a host writes to every new disk."""
SHARE: Final = 0.45
"""Least share of the writes that begin where the other side wrote: half of what a mirror needs."""
SAMPLE: Final = 512
"""Writes of a pair that are looked at."""
NEIGHBORS: Final = 4
"""Writes of the other side, before and after each of these, that are tried."""
_AT_ONCE: Final = 1 << 14
"""Writes of the pairs that are looked at together."""


def possible_offsets(pairs: Sequence[Pair]) -> list[list[int]]:
    """The offsets of the second side's addresses to those of the first, the likeliest first, for each pair."""
    return [offsets for some in _parts(pairs) for offsets in _of_some(some)]


def _parts(pairs: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
    """The pairs in parts of limited size."""
    reached = np.cumsum([len(one) + len(other) for one, other in pairs])
    first = 0
    while first < len(pairs):
        before = reached[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(reached, before + _AT_ONCE, side="right")))
        yield pairs[first:end]
        first = end


@dataclass(frozen=True)
class _Writes:
    """The writes of one side of each pair, by pair and time."""

    pair: Array
    firsts: Array
    lasts: Array
    begins: Array
    ends: Array

    @classmethod
    def of(cls, sides: Sequence[Requests]) -> _Writes:
        pair = np.repeat(np.arange(len(sides)), [len(side) for side in sides])
        names = ("firsts", "lasts", "begins", "ends")
        columns = ([getattr(side, name) for side in sides] for name in names)
        # one pair may have millions of writes
        return cls(pair, *(np.concatenate(each) if len(each) > 1 else each[0] for each in columns))

    def where(self, which: Array) -> _Writes:
        """Those that a mask picks."""
        return self if which.all() else self.at(np.flatnonzero(which))

    def at(self, rows: Array) -> _Writes:
        """Those in these rows."""
        return _Writes(*(each[rows] for each in self._columns))

    def of_pairs(self, is_own: Array, other: _Writes) -> _Writes:
        """Those of some of the pairs, and the other side's of all others."""
        own, rest = self.where(is_own[self.pair]), other.where(~is_own[other.pair])
        if not len(own.pair) or not len(rest.pair):
            return own if len(own.pair) else rest
        joined = _Writes(*(np.concatenate(each) for each in zip(own._columns, rest._columns, strict=True)))
        return joined.at(order_of(joined.pair))

    @property
    def _columns(self) -> tuple[Array, ...]:
        return self.pair, self.firsts, self.lasts, self.begins, self.ends

    def counts(self, pairs: int) -> Array:
        """The writes of each pair."""
        return np.bincount(self.pair, minlength=pairs)


def _of_some(pairs: Sequence[Pair]) -> list[list[int]]:
    one, other = _while_both_work(*map(_Writes.of, zip(*pairs, strict=True)))
    counts, other_counts = one.counts(len(pairs)), other.counts(len(pairs))
    is_enough, is_less = np.minimum(counts, other_counts) >= WRITES_MIN, counts <= other_counts
    one, other = (each.where(is_enough[each.pair]) for each in (one, other))
    found: list[list[int]] = [[] for _ in pairs]
    if not is_enough.any():
        return found
    more, picked = other.of_pairs(is_less, one), _sample(one.of_pairs(is_less, other), len(pairs))
    sign, numbers = np.where(is_less, 1, -1), np.flatnonzero(is_enough)
    likely = np.zeros((3, len(pairs)), dtype=np.int64)
    likely[1, numbers] = _commonest(picked, more)
    least, other_least = (np.minimum.reduceat(each.firsts, first_rows(each.pair)) for each in (one, other))
    likely[2, numbers] = (other_least - least) * sign[numbers]
    # first rule out offsets at which the other side never wrote
    is_likely = _covered_shares(picked, more, likely) >= SHARE
    for number in numbers.tolist():
        each = (likely[:, number] * sign[number])[is_likely[:, number]]
        found[number] = list(dict.fromkeys(each.tolist()))
    return found


def _while_both_work(one: _Writes, other: _Writes) -> tuple[_Writes, _Writes]:
    """The writes in flight between the later side's first write and the earlier side's last."""
    both = [(each, first_rows(each.pair)) for each in (one, other)]
    since = np.maximum(*(each.begins[starts] for each, starts in both))
    until = np.minimum(*(np.maximum.reduceat(each.ends, starts) for each, starts in both))
    first, second = (
        each.where((each.ends >= since[each.pair]) & (each.begins <= until[each.pair])) for each in (one, other)
    )
    return first, second


def _sample(writes: _Writes, pairs: int) -> _Writes:
    """So many of each pair at most, evenly spread."""
    counts = writes.counts(pairs)
    if counts.max() <= SAMPLE:
        return writes
    steps = [np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.intp) for count in counts.tolist()]
    starts = np.cumsum(counts) - counts
    return writes.at(np.concatenate([each + start for each, start in zip(steps, starts, strict=True)]))


def _commonest(picked: _Writes, more: _Writes) -> Array:
    """For each pair how far the neighbors in time most often are from the picked writes; the least of several."""
    near = by_subject.search(more.pair, more.begins, picked.pair, picked.begins)[:, None]
    near = near + np.arange(-NEIGHBORS, NEIGHBORS)
    inside = near.clip(0, len(more.pair) - 1)
    is_there = (near == inside) & (more.pair[inside] == picked.pair[:, None])
    of = np.nonzero(is_there)[0]
    pair, apart = picked.pair[of], more.firsts[near[is_there]] - picked.firsts[of]
    order = np.argsort(apart)
    order = order[order_of(pair[order])]
    pair, apart = pair[order], apart[order]
    is_next = np.ones(len(pair), dtype=bool)
    is_next[1:] = (pair[1:] != pair[:-1]) | (apart[1:] != apart[:-1])
    starts = np.flatnonzero(is_next)
    votes, pair = np.diff(starts, append=len(apart)), pair[starts]
    firsts = first_rows(pair)
    most = np.repeat(np.maximum.reduceat(votes, firsts), np.diff(firsts, append=len(pair)))
    best = np.flatnonzero(votes == most)
    return np.asarray(apart[starts[best[first_rows(pair[best])]]])


def _covered_shares(picked: _Writes, more: _Writes, offsets: Array) -> Array:
    """The share of each pair's picked writes that begin where the other side wrote, at each of these offsets."""
    order = np.argsort(more.firsts)
    order = order[order_of(more.pair[order])]
    pair, firsts = more.pair[order], more.firsts[order]
    reached = furthest(more.lasts[order], first_rows(pair))
    counts = np.maximum(picked.counts(offsets.shape[1]), 1)
    shares = []
    for offset in offsets:
        places = picked.firsts + offset[picked.pair]
        at = by_subject.search(pair, firsts, picked.pair, places, side="right") - 1
        is_covered = (at >= 0) & (pair[at] == picked.pair) & (places < reached[at])
        shares.append(np.bincount(picked.pair, weights=is_covered, minlength=len(counts)) / counts)
    return np.array(shares)


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
