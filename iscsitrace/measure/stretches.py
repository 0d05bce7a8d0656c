"""Stretches of the time breakdown that belong to chosen parts, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.intervals import merged

Array = NDArray[Any]


@dataclass(frozen=True)
class Stretches:
    """Stretches of time in chosen parts: when, how long, and the command that waited."""

    starts: Array
    ends: Array
    cycle: Array
    """Number of the cycle; -1 where there is none."""
    frame: Array
    """The frame that ended it; -1 where there is none."""

    @cached_property
    def lengths(self) -> Array:
        """Length of each in nanoseconds."""
        return self.ends - self.starts

    @property
    def total_ns(self) -> int:
        """Sum of the lengths in nanoseconds."""
        return int(self.lengths.sum())

    @property
    def unbroken_ns(self) -> int:
        """The longest time without a break: stretches that touch are one."""
        firsts, lasts = merged(self.starts, self.ends)
        return int((lasts - firsts).max(initial=0))

    def where(self, which: Array) -> Stretches:
        """The stretches that a boolean mask or row numbers pick."""
        return Stretches(self.starts[which], self.ends[which], self.cycle[which], self.frame[which])

    def longest(self, count: int = 3) -> Stretches:
        """The longest stretches, the longest first."""
        return self.where(np.argsort(-self.lengths, kind="stable")[:count])

    def within_ns(self, starts: Array, ends: Array) -> int:
        """Their time within the intervals [start, end), which may overlap and come in any order."""
        is_real = ends > starts
        order = np.argsort(starts[is_real], kind="stable")
        first, last = starts[is_real][order], ends[is_real][order]
        if not len(first) or not len(self.starts):
            return 0
        # cut off what earlier intervals cover
        reached = np.concatenate([first[:1], np.maximum.accumulate(last)[:-1]])
        first = np.maximum(first, reached)
        last = np.maximum(last, first)
        covered = np.concatenate([[0], np.cumsum(last - first)])

        def until(moment: Array) -> Array:
            """Covered time before an instant."""
            place = np.searchsorted(first, moment, side="right")
            # the interval that began last may end after this instant
            beyond = np.where(place > 0, last[place - 1] - moment, 0)
            return np.asarray(covered[place] - np.maximum(beyond, 0))

        return int((until(self.ends) - until(self.starts)).sum())
