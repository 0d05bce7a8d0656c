"""How long a pause has to be to end a run of commands that follow one another."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.busy import THINK_MAX_NS

STEADY_QUARTILES: Final = 10
"""Up to this many upper quartiles of the pauses of a run are part of it: a steady pause ends nothing."""

STEADY_COUNT_MIN: Final = 3
"""Pauses that it takes for steady ones."""


def longest_ns(pauses_ns: NDArray[Any]) -> float:
    """The longest pause within a run, given all pauses: 100 ms, or what is usual among them."""
    return float(longest_of_each(pauses_ns, np.zeros(len(pauses_ns), dtype=np.intp), 1)[0])


def longest_of_each(pauses_ns: NDArray[Any], place: NDArray[Any], count: int) -> NDArray[np.float64]:
    """The same of ``count`` sets of pauses; ``place`` is the set of each."""
    longest = np.full(count, float(THINK_MAX_NS))
    is_long = pauses_ns > THINK_MAX_NS / STEADY_QUARTILES
    counts, long_counts = np.bincount(place, minlength=count), np.bincount(place[is_long], minlength=count)
    # the upper quartile by the lower rank, counted from the first long pause: most sets have none there
    rank = 3 * (counts - 1) // 4 - (counts - long_counts)
    is_steady = (counts >= STEADY_COUNT_MIN) & (rank >= 0)
    rows = np.flatnonzero(is_long & is_steady[place])
    if len(rows):
        rows = rows[np.lexsort((pauses_ns[rows], place[rows]))]
        first = np.cumsum(long_counts[is_steady]) - long_counts[is_steady]
        longest[is_steady] = STEADY_QUARTILES * pauses_ns[rows[first + rank[is_steady]]].astype(np.float64)
    return longest
