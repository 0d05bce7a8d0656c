"""What the clocks of two taps are compared by: the same bytes, stamped at both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Samples:
    """Differences of two clocks, in the order in which tap A captured them."""

    time_ns: Array
    """Time at tap A, int64."""
    raw_ns: Array
    """Time at tap B less time at tap A, int64."""
    is_a_first: Array
    """Whether the bytes passed A before B."""

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def has_both_directions(self) -> bool:
        """Whether there are samples of each direction."""
        return bool(self.is_a_first.any() and not self.is_a_first.all())

    def select(self, which: Any) -> Samples:
        """The samples that a slice, a boolean mask or row numbers pick."""
        return Samples(self.time_ns[which], self.raw_ns[which], self.is_a_first[which])

    def less(self, offset_ns: Array) -> Samples:
        """The samples less the offset of B's clock at each: transit times, negative for what passed B first."""
        return Samples(self.time_ns, self.raw_ns - offset_ns, self.is_a_first)

    def cut(self, place: int) -> tuple[Samples, Samples]:
        """The samples before that place, and those from it on."""
        return self.select(slice(0, place)), self.select(slice(place, len(self)))


def joined(parts: Sequence[Samples], order: Array) -> Samples:
    """The samples of all parts in the order in which tap A captured them: of ``order``, such as their frames.

    It is no order of time where A's clock was set back.
    """
    rows = np.argsort(order, kind="stable")
    return Samples(
        np.concatenate([part.time_ns for part in parts])[rows],
        np.concatenate([part.raw_ns for part in parts])[rows],
        np.concatenate([part.is_a_first for part in parts])[rows],
    )
