"""Where a clock was set: both envelopes jump at once, by as much, within a few samples. And what no clock does.

A queue that fills moves one envelope, or both apart. Only a clock moves both the same way.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.taps.envelope import MOST_DRIFT, Envelope, widest
from iscsitrace.taps.samples import Samples

Array = NDArray[Any]

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
