"""Sets of times as sorted, disjoint intervals [from, to), and the attribution of time that several sets share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.int64]
"""Two columns; a row is one interval."""


def union(*parts: Iterable[Any] | Spans) -> Spans:
    """The union; an interval that ends before it begins is empty."""
    rows = [np.asarray(part if isinstance(part, np.ndarray) else list(part), np.int64).reshape(-1, 2) for part in parts]
    intervals = np.concatenate(rows) if rows else np.empty((0, 2), np.int64)
    intervals = intervals[intervals[:, 1] > intervals[:, 0]]
    if not len(intervals):
        return intervals
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reached = np.maximum.accumulate(intervals[:, 1])
    is_first = np.concatenate([[True], intervals[1:, 0] > reached[:-1]])
    starts = np.flatnonzero(is_first)
    return np.column_stack([intervals[starts, 0], np.maximum.reduceat(intervals[:, 1], starts)])


def attributed(span: tuple[int, int], claims: Mapping[str, Spans], rest: str) -> dict[str, int]:
    """Time of each set within the span: time in several sets counts for the first; time in no set is the rest."""
    cuts = np.concatenate([np.asarray(span, np.int64), *(claim.ravel() for claim in claims.values())])
    cuts = np.unique(np.clip(cuts, *span))
    taken = np.zeros(len(cuts) - 1, bool)
    found = {}
    for name, claim in claims.items():
        mine = covers(claim, cuts[:-1]) & ~taken
        found[name] = int(np.diff(cuts)[mine].sum())
        taken |= mine
    found[rest] = int(np.diff(cuts)[~taken].sum())
    return found


def intersection(first: Spans, second: Spans) -> Spans:
    """The intersection."""
    cuts = np.unique(np.concatenate([first.ravel(), second.ravel()]))
    pieces = np.column_stack([cuts[:-1], cuts[1:]])
    return union(pieces[covers(first, cuts[:-1]) & covers(second, cuts[:-1])])


def subtraction(first: Spans, second: Spans) -> Spans:
    """The times in the first set and not in the second."""
    if not len(first):
        return first
    return intersection(first, complement(second, (int(first[0, 0]), int(first[-1, 1]))))


def covers(intervals: Spans, times_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each time, whether it is in one of the intervals."""
    if not len(intervals):
        return np.zeros(len(times_ns), bool)
    place = np.searchsorted(intervals[:, 0], times_ns, side="right") - 1
    is_before_end: NDArray[np.bool_] = times_ns < intervals[np.maximum(place, 0), 1]
    return is_before_end & (place >= 0)


def complement(intervals: Spans, span: tuple[int, int]) -> Spans:
    """The times of the span in none of the intervals."""
    first, last = span
    inside = np.clip(intervals, first, last)
    bounds = np.concatenate([[first], inside.ravel(), [last]]).reshape(-1, 2)
    return union(bounds)
