"""Means over repeats with their 95 % confidence intervals, and the intervals of ratios and differences of two means.

Repeats differ in their seed alone and are taken as independent; so are two places of a grid. One run has no interval.
In the simulated world a place runs once where nothing depends on the seed: beside a repeated one it adds no scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np

from iscsitrace.analysis.fit.robust import student_975

_NORMAL_975: Final = 1.959964


@dataclass(frozen=True)
class Estimate:
    """A number, and what its repeats say about it."""

    value: float
    count: int = 1
    """Runs; of a ratio or a difference, those of the place with fewer, among places that were repeated."""
    low: float | None = None
    """The ends of the 95 % confidence interval; None for one run."""
    high: float | None = None
    variance: float = 0.0
    """Of the value: the squared standard error."""
    freedom: float = 0.0
    """Degrees of freedom of the variance."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The confidence interval; None for one run."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the repeats of a mean; None for one run."""
        return sqrt(self.variance * self.count) if self.freedom else None

    def lies(self, low: float, high: float) -> bool | None:
        """Whether the number, with its confidence interval, is between the limits; None where a limit is in it."""
        least, most = self.interval or (self.value, self.value)
        if low <= least and most <= high:
            return True
        return None if most >= low and least <= high else False


def mean(values: Sequence[float]) -> Estimate:
    """The mean of at least one value."""
    count = len(values)
    variance = float(np.var(values, ddof=1)) / count if count > 1 else 0.0
    return _estimate(float(np.mean(values)), count, variance, count - 1)


def variation(values: Sequence[float], scale: float = 1.0) -> Estimate | None:
    """Standard deviation / mean, times ``scale``; None for fewer than two values, or a mean of zero.

    The interval is that of the standard deviation of a normal distribution, with the quantiles of chi-square after
    Wilson and Hilferty (1931), which has none for two values.
    """
    count, middle = len(values), float(np.mean(values)) if values else 0.0
    if count < 2 or not middle:
        return None
    found = scale * float(np.std(values, ddof=1)) / abs(middle)
    least, most = (_chi_square(count - 1, normal) for normal in (-_NORMAL_975, _NORMAL_975))
    if not least:
        return Estimate(found, count)
    return Estimate(found, count, found * sqrt((count - 1) / most), found * sqrt((count - 1) / least))


def ratio(one: Estimate, other: Estimate) -> Estimate:
    """One mean / another that is not zero, by the first terms of its Taylor series."""
    value = one.value / other.value
    return _of_two(value, one, other, one.variance / other.value**2, value**2 * other.variance / other.value**2)


def difference(one: Estimate, other: Estimate) -> Estimate:
    """One mean less another."""
    return _of_two(one.value - other.value, one, other, one.variance, other.variance)


def lack(share: Estimate) -> Estimate:
    """What a share lacks to 100 %, in %."""
    low, high = (None if end is None else 100 * (1 - end) for end in (share.high, share.low))
    return Estimate(100 * (1 - share.value), share.count, low, high, 100**2 * share.variance, share.freedom)


def _of_two(value: float, one: Estimate, other: Estimate, first: float, second: float) -> Estimate:
    """The degrees of freedom are Welch's and Satterthwaite's."""
    parts = [(part, each.freedom) for part, each in ((first, one), (second, other)) if part]
    freedom = sum(part for part, _ in parts) ** 2 / sum(part**2 / each for part, each in parts) if parts else 0.0
    count = min((each.count for each in (one, other) if each.count > 1), default=1)
    return _estimate(value, count, first + second, freedom)


def _estimate(value: float, count: int, variance: float, freedom: float) -> Estimate:
    if count < 2:
        return Estimate(value, count)
    half = student_975(max(1, int(freedom))) * sqrt(variance) if variance else 0.0
    return Estimate(value, count, value - half, value + half, variance, freedom)


def _chi_square(freedom: int, normal: float) -> float:
    """The quantile of chi-square at a quantile of the normal distribution; 0 where the formula has none."""
    part = 2 / (9 * freedom)
    return freedom * max(0.0, 1 - part + normal * sqrt(part)) ** 3
