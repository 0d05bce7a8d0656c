"""Slots of a queue: rows in which stretches of time do not overlap, without a loop over them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def slots(starts_ns: Array, ends_ns: Array) -> Array:
    """The slot of each stretch, from 0; as few slots as stretches overlap at most. Ends are after their starts.

    A stretch takes the slot that has been free for longest, or a new one where none is free.
    """
    count = len(starts_ns)
    by_start, by_end = np.argsort(starts_ns, kind="stable"), np.argsort(ends_ns, kind="stable")
    starts = starts_ns[by_start]
    ended = np.searchsorted(ends_ns[by_end], starts, side="right")
    in_flight = np.arange(count) - ended
    before = np.concatenate([[-1], np.maximum.accumulate(in_flight)[:-1]]) if count else in_flight
    is_new = in_flight > before
    place = np.empty(count, dtype=np.int64)
    place[by_start] = np.arange(count)
    # the k-th that finds a free slot takes that of the k-th that ended
    taken_from = place[by_end[np.maximum(np.cumsum(~is_new) - 1, 0)]] if count else by_start
    root = np.where(is_new, np.arange(count), taken_from)
    while True:
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    found = np.empty(count, dtype=np.int64)
    found[by_start] = (np.cumsum(is_new) - 1)[root]
    return found
