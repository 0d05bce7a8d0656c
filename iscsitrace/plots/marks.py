"""The marks of plots as arrays of int64 nanoseconds and values; arrays of one mark have the same length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _empty() -> Array:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Series:
    """A value over time, or single points: each value holds until the next one."""

    times_ns: Array = field(default_factory=_empty)
    values: Array = field(default_factory=_empty)

    def __len__(self) -> int:
        return len(self.times_ns)


@dataclass(frozen=True)
class Bars:
    """Vertical bars from one value to another at an instant."""

    times_ns: Array = field(default_factory=_empty)
    lows: Array = field(default_factory=_empty)
    highs: Array = field(default_factory=_empty)

    def __len__(self) -> int:
        return len(self.times_ns)


@dataclass(frozen=True)
class Spans:
    """Stretches of time."""

    starts_ns: Array = field(default_factory=_empty)
    ends_ns: Array = field(default_factory=_empty)

    def __len__(self) -> int:
        return len(self.starts_ns)


@dataclass(frozen=True)
class Label:
    """A text at one point of a plot."""

    time_ns: int
    value: int
    text: str
