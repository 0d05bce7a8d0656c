"""A distribution of values that come in parts, in bounded memory.

Up to EXACT values, all are kept, and percentiles are those of ``measures.distribution``. Beyond that, values are
counted in classes 0.1 % wide (1024 per doubling), and a percentile is the middle of its class: within 0.05 % of the
value that occurred. Least and largest are always exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.distribution import PERCENTILES, named, percentiles

EXACT = 1 << 16
"""Values that are kept one by one."""
CLASS_BITS = 10
_CLASSES = 1 << CLASS_BITS

Array = NDArray[Any]


class Distribution:
    """Values, and percentiles of them."""

    def __init__(self, exact: int = EXACT) -> None:
        self.count = 0
        self._exact = exact
        self._parts: list[Array] = []
        self._counts: Array | None = None
        self._least = math.inf
        self._most = -math.inf

    def add(self, values: Array) -> None:
        """Adds int64 values; nulls of a masked array are left out."""
        known = values.compressed() if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        if not len(known):
            return
        self._least = min(self._least, int(known.min()))
        self._most = max(self._most, int(known.max()))
        self.count += len(known)
        if self._counts is None:
            self._parts.append(known.astype(np.int64))
            if self.count > self._exact:
                self._counts = np.zeros(0, dtype=np.int64)
                self._classify(np.concatenate(self._parts))
                self._parts.clear()
        else:
            self._classify(known)

    def percentiles(self) -> dict[str, int | None]:
        """``n p50 p95 p99 max`` by nearest rank; None where there are too few values."""
        if self._counts is None:
            found = np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.int64)
            self._parts = [found] if len(found) else []
            return percentiles(found)
        reached = np.cumsum(self._counts)
        places = [rank(self.count, percent) for percent in PERCENTILES.values()]
        classes = np.searchsorted(reached, places, side="right")
        found_values = [int(min(max(_middle(int(each)), self._least), self._most)) for each in classes]
        return named(self.count, found_values) | {"max": int(self._most)}

    def _classify(self, values: Array) -> None:
        classes = np.bincount(_classes(values))
        held = self._counts if self._counts is not None else np.zeros(0, dtype=np.int64)
        if len(classes) > len(held):
            held = np.concatenate([held, np.zeros(len(classes) - len(held), dtype=np.int64)])
        held[: len(classes)] += classes
        self._counts = held


def rank(count: int, percent: float) -> int:
    """The place of a percentile in sorted values, as NumPy's ``inverted_cdf`` defines it."""
    return math.ceil(count * (percent / 100) - 1)


def _classes(values: Array) -> Array:
    """The class of each value: small values themselves, else the first eleven bits and the size."""
    positive = np.maximum(values, 0)
    # exact for values below 2^53
    _, bits = np.frexp(positive.astype(np.float64))
    shift = np.maximum(bits.astype(np.int64) - (CLASS_BITS + 1), 0)
    classes: Array = shift * _CLASSES + (positive >> shift)
    return classes


def _middle(number: int) -> int:
    shift = max(number // _CLASSES - 1, 0)
    first = (number - shift * _CLASSES) << shift
    return first + ((1 << shift) >> 1)
