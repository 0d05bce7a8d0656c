"""The lines between two envelopes: one with the greatest margin, and the bounds of all of them; and where a clock was
set.

``upper`` are points that a line has to stay below, ``lower`` those that it has to stay above. For one slope the best
line lies in the middle of what the points leave; what they leave is a concave function of the slope. The points are
samples: the same bytes, stamped by the clocks of two taps.

Where a clock was set, both envelopes jump at once, by as much, within a few samples. A queue that fills moves one
envelope, or both apart. Only a clock moves both the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

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


_AROUND: Final = 6
"""Samples of each direction on each side of a step."""

_LEAST_NS: Final = 200_000
_ABOVE_NOISE: Final = 8.0
_SURE: Final = 4.0
"""Standard errors by which a drift is above that of clocks."""
_EQUAL: Final = 0.3
"""The drifts of the two directions differ by less than this share."""
_UNEQUAL: Final = 0.3
"""The jumps of the two envelopes differ by less than this share."""


def step_between(samples: Samples, slope: float) -> int | None:
    """Number of the first sample after the largest step; None if there is none. ``slope`` is the drift so far."""
    raw = samples.raw_ns - samples.raw_ns[0] - slope * (samples.time_ns - samples.time_ns[0])
    upper, lower = raw[samples.is_a_first], raw[~samples.is_a_first]
    if min(len(upper), len(lower)) < 2 * _AROUND:
        return None
    rises, falls = _jumps(upper), _jumps(-lower)
    if max(np.abs(rises).max(), np.abs(falls).max()) <= _LEAST_NS:
        return None
    # the samples of each direction before each boundary; boundaries need enough of both on each side
    at_upper = np.cumsum(samples.is_a_first)[:-1]
    at_lower = np.arange(1, len(samples)) - at_upper
    is_inside = (np.minimum(at_upper, at_lower) >= _AROUND) & (at_upper <= len(upper) - _AROUND)
    is_inside &= at_lower <= len(lower) - _AROUND
    places = np.flatnonzero(is_inside) + 1
    if not len(places):
        return None
    up, down = rises[at_upper[places - 1] - _AROUND], -falls[at_lower[places - 1] - _AROUND]
    size = (up + down) / 2
    noise = np.median(np.abs(up)) + np.median(np.abs(down))
    is_step = (np.abs(size) > max(_LEAST_NS, _ABOVE_NOISE * noise)) & (np.abs(up - down) < _UNEQUAL * np.abs(size))
    is_step &= np.sign(up) == np.sign(down)
    if not is_step.any():
        return None
    # of the boundaries around a step, the one at which the two jumps are largest
    scores = np.where(is_step, np.minimum(np.abs(up), np.abs(down)), -1.0)
    at = np.flatnonzero(scores >= scores.max() * 0.98)
    apart = np.abs(np.diff(raw))[places[at] - 1]
    return int(places[at][apart.argmax()])


def _jumps(values: Array) -> Array:
    """Least of the values behind a place less the least of those before it, for each place with enough of both."""
    least = values
    for count in range(1, _AROUND):
        least = np.minimum(least[:-1], values[count:])
    return np.asarray(least[_AROUND:] - least[:-_AROUND])


def worst_boundary(samples: Samples) -> int | None:
    """The boundary that leaves the most room to a line on each side; None if no boundary has both directions around."""
    best: tuple[float, int] | None = None
    low, high = 1, len(samples) - 1
    while high >= low:
        places = np.unique(np.linspace(low, high, 17).astype(np.int64)).tolist()
        margins = [(_room(samples, place), place) for place in places]
        room, place = max(margins)
        if room > -np.inf and (best is None or room > best[0]):
            best = room, place
        if len(places) < 17 or room == -np.inf:
            break
        stride = (high - low) // 16
        low, high = max(low, place - stride), min(high, place + stride)
        if stride <= 1:
            break
    return best[1] if best else None


def _room(samples: Samples, place: int) -> float:
    """The smaller margin of the lines of the samples before and from that place on."""
    parts = samples.cut(place)
    if not all(part.has_both_directions for part in parts):
        return -np.inf
    return min(widest([Envelope.of(part)])[1] for part in parts)


def drifts_together(samples: Samples) -> bool:
    """Whether the differences of both directions drift by as much, faster than any clock.

    Other traffic, with like commands.

    One queue moves one of them, two queues move them by different amounts.
    """
    slopes = []
    for which in (samples.is_a_first, ~samples.is_a_first):
        own = samples.select(which)
        if len(own) < 2 * _AROUND:
            return False
        time = (own.time_ns - own.time_ns[0]).astype(np.float64)
        raw = (own.raw_ns - own.raw_ns[0]).astype(np.float64)
        time, raw = time - time.mean(), raw - raw.mean()
        # sums of products: a product of vectors this long would wake threads for less than they cost
        spread = float((time * time).sum())
        if not spread:
            return False
        slope = float((time * raw).sum()) / spread
        rest = raw - slope * time
        error = float(np.sqrt((rest * rest).sum() / (len(own) - 2) / spread))
        if abs(slope) - _SURE * error <= MOST_DRIFT:
            return False
        slopes.append(slope)
    return abs(slopes[0] - slopes[1]) <= _EQUAL * abs(slopes[0])
