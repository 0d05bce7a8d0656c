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

from iscsitrace.measure import waits
from iscsitrace.measure.distribution import PERCENTILES, named, percentiles, rank

EXACT = 1 << 16
"""Values that are kept one by one."""
CLASS_BITS = 10
_CLASSES = 1 << CLASS_BITS

Array = NDArray[Any]
_NONE = np.zeros(0, dtype=np.int64)


class Distribution:
    """Values, and percentiles of them."""

    def __init__(self, exact: int = EXACT) -> None:
        self.count = 0
        self.open_count = 0
        self._exact = exact
        self._parts: list[Array] = []
        self._counts: Array | None = None
        self._least = math.inf
        self._most = -math.inf
        # the largest lower bounds, ascending
        self._bounds: Array = _NONE
        self._named: dict[str, int | None] | None = None
        """The percentiles without commands in flight, until more values come."""

    def add(self, values: Array) -> None:
        """Adds int64 values; nulls of a masked array are left out."""
        known = values.compressed() if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        if not len(known):
            return
        self._named = None
        self._least = min(self._least, int(known.min()))
        self._most = max(self._most, int(known.max()))
        self.count += len(known)
        self._parts.append(known.astype(np.int64))
        self._compress()

    def add_bounds(self, values: Array) -> None:
        """Adds lower bounds of values that are above all others: commands that never got a status."""
        self._named = None
        self.open_count += len(values)
        self._bounds = np.sort(np.concatenate([self._bounds, values]))[-self._exact :]
        self._compress()

    def percentiles(self, in_flight: Array = _NONE) -> dict[str, int | None]:
        """``n p50 p95 p99 max`` by nearest rank; None where there are too few values.

        ``in_flight`` are bounds for now: those above all values count (:func:`waits.slowest`).
        """
        if len(in_flight):
            return self._percentiles(in_flight)
        if self._named is None:
            self._named = self._percentiles(in_flight)
        return self._named

    def _percentiles(self, in_flight: Array) -> dict[str, int | None]:
        bounds = waits.slowest(np.array([max(self._most, 0)]), self._bounds, in_flight)
        if self._counts is None:
            found = np.concatenate(self._parts) if self._parts else _NONE
            self._parts = [found] if len(found) else []
            return percentiles(found, bounds)
        open_count = self.open_count + len(bounds) - len(self._bounds)
        total, reached = self.count + open_count, np.cumsum(self._counts)

        def value(place: int) -> int:
            if place >= self.count:
                # of very many bounds the least are not kept
                return max(int(bounds[max(place - total, -len(bounds))]), int(self._most))
            if place == self.count - 1:
                return int(self._most)
            middle = _middle(int(np.searchsorted(reached, place, side="right")))
            return int(min(max(middle, self._least), self._most))

        named_values = named(total, [value(rank(total, percent)) for percent in PERCENTILES.values()])
        return named_values | {"open_count": open_count} if open_count else named_values

    def _compress(self) -> None:
        """Counts the values by class when there are many."""
        if self._counts is not None or (self.count and self.count + self.open_count > self._exact):
            values = np.concatenate(self._parts) if self._parts else _NONE
            self._parts.clear()
            self._counts = _NONE if self._counts is None else self._counts
            self._classify(values)

    def _classify(self, values: Array) -> None:
        classes = np.bincount(_classes(values)) if len(values) else _NONE
        held = self._counts if self._counts is not None else np.zeros(0, dtype=np.int64)
        if len(classes) > len(held):
            held = np.concatenate([held, np.zeros(len(classes) - len(held), dtype=np.int64)])
        held[: len(classes)] += classes
        self._counts = held


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
