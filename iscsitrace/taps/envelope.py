"""The lines between two envelopes: one with the greatest margin, and the bounds of all of them.

``upper`` are points that a line has to stay below, ``lower`` those that it has to stay above. For one slope the best
line lies in the middle of what the points leave; what they leave is a concave function of the slope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.taps.samples import Samples

Array = NDArray[Any]

MOST_DRIFT: Final = 1e-3
"""Two clocks differ by less: crystals by 100 ppm each, and a clock that NTP slews by 500 more."""

_BUCKETS: Final = 2_000
_SLACK_NS: Final = 1_000
_CHANCE: Final = 4.0
"""Among n samples the least delay exceeds the least possible one by about their excess / n, and sometimes
by this many times as much."""
_SLACK: Final = 0.1
"""At most this share of the margin."""
_ROUNDS: Final = 48


@dataclass(frozen=True)
class OffsetLine:
    """An offset that changes with time."""

    from_ns: int
    base_ns: int
    """Offset at ``from_ns``."""
    slope: float

    def at(self, time_a_ns: Any) -> Any:
        """Offset at times of A, int64."""
        return self.base_ns + np.rint(self.slope * (np.asarray(time_a_ns) - self.from_ns)).astype(np.int64)

    def to_a(self, time_b_ns: Array) -> Array:
        """Times of B on A's clock."""
        passed = time_b_ns - self.base_ns - self.from_ns
        return np.asarray(time_b_ns - self.base_ns - np.rint(passed * (self.slope / (1 + self.slope))).astype(np.int64))


@dataclass(frozen=True)
class Envelope:
    """The points that limit a line. Times and differences are float64, relative to ``from_ns`` and ``base_ns``."""

    from_ns: int
    base_ns: int
    upper_time: Array
    upper: Array
    lower_time: Array
    lower: Array
    counts: tuple[int, int]
    """Samples of which these are the strictest."""

    @classmethod
    def of(cls, samples: Samples) -> Envelope:
        """The limits of samples of both directions: of each of many stretches the strictest one."""
        from_ns, base_ns = int(samples.time_ns[0]), int(np.median(samples.raw_ns))
        upper, lower = np.flatnonzero(samples.is_a_first), np.flatnonzero(~samples.is_a_first)
        counts = len(upper), len(lower)
        upper = upper[_strictest(samples.raw_ns[upper])]
        lower = lower[_strictest(-samples.raw_ns[lower])]
        times = [(samples.time_ns[rows] - from_ns).astype(np.float64) for rows in (upper, lower)]
        limits = [(samples.raw_ns[rows] - base_ns).astype(np.float64) for rows in (upper, lower)]
        return cls(from_ns, base_ns, times[0], limits[0], times[1], limits[1], counts)

    def below(self, slope: float) -> float:
        """Highest value at ``from_ns`` of a line of that slope that stays below the upper points."""
        return float((self.upper - slope * self.upper_time).min())

    def above(self, slope: float) -> float:
        """Lowest value there of one that stays above the lower points."""
        return float((self.lower - slope * self.lower_time).max())

    def margin(self, slope: float) -> float:
        """Margin of the best line of that slope; negative where there is none between the points."""
        return (self.below(slope) - self.above(slope)) / 2

    def slack_ns(self, slope: float) -> float:
        """By how much margins of lines about that slope differ by chance."""
        above = self.upper - slope * self.upper_time, slope * self.lower_time - self.lower
        excess = sum(
            float(np.median(each) - each.min()) / count for each, count in zip(above, self.counts, strict=True)
        )
        return max(_SLACK_NS, _CHANCE * excess)

    def narrowest(self, line: OffsetLine) -> tuple[int, int, int]:
        """Time at which all lines between the points are closest to each other, with the least and greatest offset."""
        slopes_ends = _slopes_where(lambda slope: self.margin(slope) >= 0, line.slope)
        slopes = np.linspace(*slopes_ends, 65)
        below, above = (np.array([limit(slope) for slope in slopes.tolist()]) for limit in (self.below, self.above))
        times = np.linspace(0.0, max(self.upper_time.max(), self.lower_time.max()), 257)
        apart = (below + np.outer(times, slopes)).max(axis=1) - (above + np.outer(times, slopes)).min(axis=1)
        time = float(times[apart.argmin()])

        def highest(slope: float) -> float:
            return self.below(slope) + slope * time

        def lowest(slope: float) -> float:
            return -self.above(slope) - slope * time

        high, low = highest(_greatest(highest, *slopes_ends)), -lowest(_greatest(lowest, *slopes_ends))
        return self.from_ns + round(time), self.base_ns + int(np.floor(low)), self.base_ns + int(np.ceil(high))


def widest(envelopes: Sequence[Envelope]) -> tuple[list[OffsetLine], float]:
    """The lines of one slope with the greatest margin, one for each envelope, and the least of their margins in ns.

    Of equal ones those with the least drift.
    """

    def margin(slope: float) -> float:
        return min(envelope.margin(slope) for envelope in envelopes)

    greatest = _greatest(margin)
    most = margin(greatest)
    least = most - min(max(envelope.slack_ns(greatest) for envelope in envelopes), _SLACK * abs(most))
    slope = float(np.clip(0.0, *_slopes_where(lambda slope: margin(slope) >= least, greatest)))
    lines = [
        OffsetLine(each.from_ns, each.base_ns + round((each.below(slope) + each.above(slope)) / 2), slope)
        for each in envelopes
    ]
    return lines, margin(slope)


def _greatest(value: Callable[[float], float], low: float = -MOST_DRIFT, high: float = MOST_DRIFT) -> float:
    """The slope of the greatest value, by thirds: the value is a concave function of the slope."""
    for _ in range(_ROUNDS):
        third = (high - low) / 3
        if value(low + third) < value(high - third):
            low += third
        else:
            high -= third
    return (low + high) / 2


def _slopes_where(holds: Callable[[float], bool], inside: float) -> tuple[float, float]:
    """Least and greatest slope for which it holds: an interval around ``inside``."""
    ends = []
    for end in (-MOST_DRIFT, MOST_DRIFT):
        good, bad = inside, end
        if holds(end):
            good = end
        else:
            for _ in range(_ROUNDS // 2):
                middle = (good + bad) / 2
                good, bad = (middle, bad) if holds(middle) else (good, middle)
        ends.append(good)
    return ends[0], ends[1]


def _strictest(value: Array) -> Array:
    """Places of the least value in each of many stretches of equal count, in order; the last one may be shorter."""
    if len(value) <= _BUCKETS:
        return np.arange(len(value))
    count = -(-len(value) // _BUCKETS)
    whole = len(value) // count * count
    places = np.arange(0, whole, count) + value[:whole].reshape(-1, count).argmin(axis=1)
    return places if whole == len(value) else np.append(places, whole + value[whole:].argmin())
