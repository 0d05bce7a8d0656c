"""Confidence intervals of means, ratios, differences and coefficients of variation, against tables and simulation."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from iscsitrace.studies import repeats
from iscsitrace.studies.repeats import MeasuredValue

FIVE = (84.0, 85.0, 86.0, 87.0, 88.0)
"""Standard deviation: the square root of 2.5."""
T_4 = 2.7764
"""The 97.5 % quantile of Student's t with four degrees of freedom, from a table; with eight it is 2.3060."""
T_8 = 2.3060


def test_the_interval_of_a_mean_is_students() -> None:
    found = repeats.mean(FIVE)
    half = T_4 * sqrt(2.5 / 5)
    assert (found.value, found.count) == (86.0, 5)
    assert found.interval == pytest.approx((86 - half, 86 + half), rel=1e-3)
    assert found.spread == pytest.approx(sqrt(2.5))


def test_one_run_has_no_interval_and_equal_runs_one_without_width() -> None:
    one = repeats.mean([3.0])
    assert (one.value, one.interval, one.spread) == (3.0, None, None)
    assert repeats.mean([3.0, 3.0]).interval == (3.0, 3.0)


def test_a_difference_adds_variances() -> None:
    """Equal counts and variances: Welch's degrees of freedom are 4 + 4."""
    found = repeats.difference(repeats.mean(FIVE), repeats.mean([each - 80 for each in FIVE]))
    half = T_8 * sqrt(2 * 2.5 / 5)
    assert found.interval == pytest.approx((80 - half, 80 + half), rel=1e-3)


def test_a_place_that_runs_once_adds_no_scatter() -> None:
    one, five = repeats.mean([43.0]), repeats.mean(FIVE)
    found = repeats.ratio(five, one)
    assert (found.value, found.count) == (2.0, 5)
    assert found.interval == pytest.approx((2 - T_4 * sqrt(0.5) / 43, 2 + T_4 * sqrt(0.5) / 43), rel=1e-3)
    assert repeats.ratio(one, one).interval is None


@pytest.mark.parametrize(
    ("value", "interval", "limits", "lies"),
    [
        (85.92, (85.6, 86.24), (86, 96), None),
        (85.92, (85.85, 85.99), (86, 96), False),
        (86.5, (86.1, 86.9), (86, 96), True),
        # above the limit by chance: as undecided as below it
        (86.1, (85.8, 86.4), (86, 96), None),
        # wider than the limits
        (90.0, (80.0, 100.0), (86, 96), None),
        # one run
        (85.92, None, (86, 96), False),
        (86.0, None, (86, 96), True),
    ],
)
def test_a_number_lies_within_its_limits_with_its_whole_interval(
    value: float, interval: tuple[float, float] | None, limits: tuple[float, float], lies: bool | None
) -> None:
    low, high = interval or (None, None)
    assert MeasuredValue(value, 5, low, high).lies(*limits) is lies


def test_the_coefficient_of_variation_has_the_interval_of_chi_square() -> None:
    """With four degrees of freedom chi-square is 0.4844 and 11.1433 at 2.5 and 97.5 %."""
    found = repeats.variation(FIVE, 100)
    assert found is not None
    value = 100 * sqrt(2.5) / 86
    assert found.value == pytest.approx(value)
    low, high = found.interval or (0, 0)
    assert low == pytest.approx(value * sqrt(4 / 11.1433), rel=0.01)
    # Wilson and Hilferty are a little wide at so few degrees of freedom, never narrow
    assert value * sqrt(4 / 0.4844) <= high <= 1.06 * value * sqrt(4 / 0.4844)
    assert repeats.variation([1.0]) is None
    assert repeats.variation([1.0, -1.0]) is None
    two = repeats.variation([1.0, 2.0])
    assert two is not None
    assert two.interval is None


def test_intervals_of_ratios_have_the_true_one_in_them_as_often_as_they_say() -> None:
    random = np.random.default_rng(7143)
    hits = 0
    for _ in range(2000):
        one, other = random.normal(30, 2, 5), random.normal(10, 1, 5)
        low, high = repeats.ratio(repeats.mean(one.tolist()), repeats.mean(other.tolist())).interval or (0, 0)
        hits += low <= 3 <= high
    assert hits / 2000 == pytest.approx(0.95, abs=0.02)
