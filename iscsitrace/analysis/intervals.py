"""The algebra of half-open time intervals [start, end): int64 nanoseconds, any order, overlaps welcome."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def union_length(starts: NDArray[Any], ends: NDArray[Any]) -> int:
    """Time that at least one interval covers; an interval that ends before it starts covers nothing."""
    is_real = ends > starts
    starts, ends = starts[is_real], ends[is_real]
    if not len(starts):
        return 0
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    # what an interval adds lies beyond the furthest end before it
    reached = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    added = ends - np.maximum(starts, reached)
    return int(added[added > 0].sum())
