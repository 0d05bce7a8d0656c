"""Algebra of half-open time intervals [start, end) in int64 nanoseconds, in any order, overlapping or not. Also finds
the step at which something repeats: every 20th command, every 2 s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]
"""From when until when, in nanoseconds since 1970."""

_MOST_NS: Final = 2.0**62
"""Time of all groups together up to which their instants can be put on one axis of int64."""


def union_length(starts: NDArray[Any], ends: NDArray[Any]) -> int:
    """Time that at least one interval covers; an interval that ends before it starts covers nothing."""
    is_real = ends > starts
    starts, ends = starts[is_real], ends[is_real]
    if not len(starts):
        return 0
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    # an interval adds the time after the furthest end before it
    reached = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    added = ends - np.maximum(starts, reached)
    return int(np.maximum(added, 0).sum())


def union_lengths(starts: NDArray[Any], ends: NDArray[Any], firsts: NDArray[Any]) -> NDArray[Any]:
    """The same of each group of intervals: the groups begin at the rows ``firsts``; each is in order of its starts."""
    ends = np.maximum(ends, starts)
    reached = np.concatenate([starts[:1], furthest(ends, firsts)[:-1]])
    reached[firsts] = starts[firsts]
    return np.add.reduceat(np.maximum(ends - np.maximum(starts, reached), 0), firsts)


def furthest(instants: NDArray[Any], firsts: NDArray[Any]) -> NDArray[Any]:
    """The latest instant of each row's group up to that row; the groups begin at the rows ``firsts``."""
    lows, highs = np.minimum.reduceat(instants, firsts), np.maximum.reduceat(instants, firsts)
    lengths = highs.astype(np.float64) - lows
    if lengths.sum() >= _MOST_NS:
        return np.concatenate([np.maximum.accumulate(each) for each in np.split(instants, firsts[1:])])
    # one after the other, no group reaches into the next
    moves = np.cumsum(highs - lows) - highs
    moved = np.repeat(moves, np.diff(firsts, append=len(instants)))
    return np.asarray(np.maximum.accumulate(instants + moved) - moved)


def covered_ns(spans: Iterable[Span]) -> int:
    """Time that at least one span covers."""
    return union_length(*np.array(list(spans), dtype=np.int64).reshape(-1, 2).T)


def covered_until(starts: NDArray[Any], ends: NDArray[Any], instants: NDArray[Any]) -> NDArray[Any]:
    """Time of the intervals before each instant; the intervals are disjoint and in order."""
    if not len(starts):
        return np.zeros(len(instants), dtype=np.int64)
    whole = np.concatenate([[0], np.cumsum(ends - starts)])
    begun = np.searchsorted(starts, instants, side="right")
    # the last one that has begun may end after the instant
    beyond = np.where(begun > 0, np.maximum(ends[begun - 1] - instants, 0), 0)
    return np.asarray(whole[begun] - beyond)


def merged(starts: NDArray[Any], ends: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The same time as disjoint intervals in order: intervals that overlap or touch are joined."""
    is_real = ends > starts
    starts, ends = starts[is_real], ends[is_real]
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    is_first = np.concatenate([[True], starts[1:] > ends[:-1]]) if len(starts) else np.zeros(0, dtype=bool)
    is_last = np.concatenate([is_first[1:], [True]]) if len(starts) else is_first
    return starts[is_first], ends[is_last]


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same of spans."""
    firsts, lasts = merged(*np.array(list(spans), dtype=np.int64).reshape(-1, 2).T)
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def intersection(
    starts: NDArray[Any], ends: NDArray[Any], other_starts: NDArray[Any], other_ends: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The common time of two sets of intervals; each set and the result are disjoint and in order."""
    edges = np.unique(np.concatenate([starts, ends, other_starts, other_ends]))
    if len(edges) < 2:
        return edges[:0], edges[:0]
    middle = edges[:-1]
    is_common = np.ones(len(middle), dtype=bool)
    for first, last in ((starts, ends), (other_starts, other_ends)):
        begun = np.searchsorted(first, middle, side="right") - 1
        is_common &= (begun >= 0) & (middle < last[begun.clip(0)]) if len(first) else False
    return edges[:-1][is_common], edges[1:][is_common]


def difference(
    starts: NDArray[Any], ends: NDArray[Any], other_starts: NDArray[Any], other_ends: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The time of the first set that the second does not cover; each set and the result are disjoint and in order.

    An instant, an interval of the second set without length, cuts an interval of the first set in two.
    """
    # between the end of each interval of the second set and the start of the next
    bounds = np.iinfo(np.int64)
    free_starts = np.concatenate([[bounds.min], other_ends])
    free_ends = np.concatenate([other_starts, [bounds.max]])
    first = np.searchsorted(free_ends, starts, side="right")
    last = np.searchsorted(free_starts, ends, side="left")
    counts = np.maximum(last - first, 0)
    place = np.repeat(np.arange(len(starts)), counts)
    free = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    found_starts = np.maximum(starts[place], free_starts[free])
    found_ends = np.minimum(ends[place], free_ends[free])
    is_real = found_ends > found_starts
    return found_starts[is_real], found_ends[is_real]


Array = NDArray[Any]

ALIKE: Final = 0.75
"""Least share of the steps, or of what a pattern is looked for in, that is alike."""
_SAME: Final = 0.1
"""Two periods are the same if they differ by this share."""


def step_of(steps: Array, share: float = _SAME) -> int:
    """The step that most of these are, to this share of it; 0 where there is none."""
    if len(steps) < 2:
        return 0
    typical = float(np.median(steps))
    return round(typical) if (np.abs(steps - typical) <= share * typical).mean() >= ALIKE else 0
