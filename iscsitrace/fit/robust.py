"""Robust means, linear regression (Huber) and the throughput of cycles, with standard errors. NumPy only.

Cycles that follow each other are not independent: a queue, a window and a host carry over from one to the next. So the
interval of their throughput does not come from single cycles where there are many, but from batches of consecutive ones
(Law, Simulation Modeling and Analysis, 4th edition, chapter 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.model.uncertainty import Estimate

Array = NDArray[Any]

HUBER: Final = 1.345
"""Standard deviations beyond which a value counts less: without outliers this keeps 95 % of the efficiency."""
NORMAL_DECILES: Final = 2.5631
"""Standard deviations of a normal distribution between its first and last decile."""
NORMAL_SD_OF_MAD: Final = 1.4826
"""Standard deviation of a normal distribution / its median absolute deviation."""
_ROUNDS: Final = 50
_NORMAL_975: Final = 1.959964
_STUDENT_975: Final = {1: 12.7062, 2: 4.3027}
_STATED: Final = 3
"""Degrees of freedom of the stated errors, which come from few cycles."""
_MISTRUSTED: Final = 2.0


def student_975(freedom: int) -> float:
    """The 97.5 % quantile of Student's t; infinite without a degree of freedom.

    The expansion in 1 / freedom of Abramowitz and Stegun, 26.7.5: within 0.1 % from three degrees on.
    """
    if freedom < 1:
        return float("inf")
    if freedom in _STUDENT_975:
        return _STUDENT_975[freedom]
    z = _NORMAL_975
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))


def weights(values: Array) -> Array:
    """Huber's weights for the mean of these values: 1, and less for outliers.

    The spread is measured between the deciles: a tenth on either side may be outliers, but two clusters are not.
    """
    middle = float(np.median(values))
    low, high = np.quantile(values, (0.1, 0.9))
    # nearly equal values have no spread: assume a thousandth
    spread = max((high - low) / NORMAL_DECILES, 1e-3 * abs(middle), 1e-12)
    for _ in range(_ROUNDS):
        found = HUBER / np.maximum(np.abs(values - middle) / spread, HUBER)
        middle = float(np.average(values, weights=found))
    return np.asarray(found)


def standard_error(values: Array, given: Array) -> float:
    """Of the mean of the values with these weights; infinite for a single value."""
    if len(values) < 2:
        return float("inf")
    psi = given * (values - np.average(values, weights=given))
    # weights of 1 are the values that count in full
    whole = max(int((given >= 1).sum()), 1)
    return float(np.sqrt(np.sum(psi**2) * len(values) / (len(values) - 1)) / whole)


@dataclass(frozen=True)
class LinearFit:
    """A fitted linear model with coefficients of 0 or more."""

    values: Array
    half_widths: Array
    """Half widths of the 95 % confidence intervals."""
    correlation: Array
    """Correlation matrix of the coefficients."""


def solve(design: Array, measured: Array, errors: Array) -> LinearFit:
    """Coefficients of the columns of ``design``, none negative, for measured values with these standard errors.

    Intervals are as wide as the stated errors and the residuals make them: see `widening`.
    """
    freedom = len(measured) - design.shape[1]
    rows, wanted = design / errors[:, None], measured / errors
    given = np.ones(len(measured))
    for _ in range(_ROUNDS):
        root = np.sqrt(given)
        found = _least_squares(rows * root[:, None], wanted * root)
        off = np.abs(wanted - rows @ found)
        spread = max(1.0, NORMAL_SD_OF_MAD * float(np.median(off))) if freedom > 0 else 1.0
        before, given = given, HUBER / np.maximum(off / spread, HUBER)
        if np.allclose(before, given, atol=1e-6):
            break
    off = wanted - rows @ found
    covariance = np.linalg.inv((rows * given[:, None]).T @ rows)
    errors_of_each = np.sqrt(np.diag(covariance))
    half_widths = widening(float(np.sum(given * off**2)), freedom) * errors_of_each
    return LinearFit(found, half_widths, covariance / np.outer(errors_of_each, errors_of_each))


def widening(chi_squared: float, freedom: int) -> float:
    """Half width of a 95 % interval in stated standard errors; ``chi_squared`` is the sum of squared residuals in them.

    By Student's t over the residuals, with the stated error as one more of them: without it, one or two residuals make
    an interval short by luck, or tens of errors wide. Where the residuals are twice as large as stated, the stated
    error does not count. Never shorter than by the stated errors, which are estimates too.
    """
    by_stated = student_975(_STATED + max(freedom, 0))
    if freedom <= 0:
        return by_stated
    counted = 0 if chi_squared > _MISTRUSTED**2 * freedom else 1
    size = float(np.sqrt((counted + chi_squared) / (counted + freedom)))
    return max(by_stated, student_975(counted + freedom) * size)


def _least_squares(rows: Array, wanted: Array) -> Array:
    """Least squares with coefficients of 0 or more: with so few columns every choice of positive ones is tried."""
    count = rows.shape[1]
    found = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    if (found >= 0).all():
        return np.asarray(found)
    best, least = np.zeros(count), float(wanted @ wanted)
    for size in range(1, count):
        for chosen in combinations(range(count), size):
            found = np.linalg.lstsq(rows[:, chosen], wanted, rcond=None)[0]
            off = wanted - rows[:, chosen] @ found
            if (found >= 0).all() and float(off @ off) < least:
                best, least = np.zeros(count), float(off @ off)
                best[list(chosen)] = found
    return best


def is_solvable(design: Array) -> bool:
    """Whether the columns differ enough for their coefficients to be determined."""
    if len(design) < design.shape[1]:
        return False
    most = np.abs(design).max(axis=0)
    if (most == 0).any():
        return False
    strength = np.linalg.svd(design / most, compute_uv=False)
    return bool(strength[-1] > 0.05 * strength[0])


BATCHES: Final = 20
"""Most batches: with more of them, each is so short that it depends on the one before."""


def throughput_of_batches(bytes_of_each: Array, lengths_ns: Array) -> Estimate:
    """All bytes / all time, in bytes/s, with a 95 % confidence interval.

    ``bytes_of_each`` and ``lengths_ns`` have one value for each cycle, in order of time; there are at least two.
    The rate is a ratio of two sums: its standard error is that of bytes - rate * time over the batches.
    """
    count = min(len(lengths_ns), BATCHES)
    amounts = np.array([float(each.sum()) for each in np.array_split(bytes_of_each, count)])
    times = np.array([float(each.sum()) for each in np.array_split(lengths_ns, count)])
    rate = float(amounts.sum() / times.sum())
    off = amounts - rate * times
    half = student_975(count - 1) * float(np.sqrt(np.sum(off**2) * count / (count - 1)) / times.sum())
    return Estimate(rate * 1e9, max(0.0, rate - half) * 1e9, (rate + half) * 1e9, "packets")
