"""The time that at least one of many intervals covers, when the intervals come in parts and in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PENDING_MAX = 1 << 16
"""Disjoint stretches that are kept open for later intervals between them."""

Array = NDArray[Any]


class ActiveTime:
    """A sum of covered time, exact as long as no more than PENDING_MAX stretches are open."""

    def __init__(self) -> None:
        self._sealed_ns = 0
        self._sealed_until: int | None = None
        self._starts: Array = np.zeros(0, dtype=np.int64)
        self._ends: Array = np.zeros(0, dtype=np.int64)

    def add(self, starts: Array, ends: Array, settled_ns: int) -> None:
        """Adds intervals [start, end); later ones begin at ``settled_ns`` or after."""
        if self._sealed_until is not None:
            starts = np.maximum(starts, self._sealed_until)
        is_real = ends > starts
        self._starts, self._ends = _disjoint(
            np.concatenate([self._starts, starts[is_real]]), np.concatenate([self._ends, ends[is_real]])
        )
        if len(self._starts) > PENDING_MAX:
            settled_ns = max(settled_ns, int(self._starts[len(self._starts) // 2]))
        self._seal(settled_ns)

    @property
    def total_ns(self) -> int:
        """Covered time so far."""
        return self._sealed_ns + int((self._ends - self._starts).sum())

    def _seal(self, until_ns: int) -> None:
        if not len(self._starts) or self._starts[0] >= until_ns:
            return
        self._sealed_ns += int((np.minimum(self._ends, until_ns) - np.minimum(self._starts, until_ns)).sum())
        is_left = self._ends > until_ns
        self._starts, self._ends = np.maximum(self._starts[is_left], until_ns), self._ends[is_left]
        self._sealed_until = until_ns


def _disjoint(starts: Array, ends: Array) -> tuple[Array, Array]:
    """The same time as disjoint intervals in order."""
    if len(starts) < 2:
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reached = np.maximum.accumulate(ends)
    begins = np.concatenate([[True], starts[1:] > reached[:-1]])
    lasts = np.concatenate([np.flatnonzero(begins)[1:] - 1, [len(starts) - 1]])
    return starts[begins], reached[lasts]
