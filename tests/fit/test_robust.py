"""Huber's weights, standard errors, fitted lines and the throughput of cycles, against arithmetic by hand."""

from __future__ import annotations

from fractions import Fraction
from math import inf, sqrt

import numpy as np
import pytest

from iscsitrace.fit import robust
from iscsitrace.fit.robust import LinearFit, throughput_of_batches

HUBER = 1.345
T = {2: 4.30265, 3: 3.18245, 4: 2.77645, 6: 2.44691}
"""Quantiles of Student's t at 97.5 %, from tables."""


# --- quantiles


@pytest.mark.parametrize(("freedom", "quantile"), [(-1, inf), (0, inf), (1, 12.7062), (2, 4.3027)])
def test_few_degrees_of_freedom_have_quantiles_of_the_table(freedom: int, quantile: float) -> None:
    assert robust.student_975(freedom) == quantile


@pytest.mark.parametrize("freedom", [3, 4, 7, 40])
def test_the_expansion_has_the_coefficients_of_the_handbook(freedom: int) -> None:
    """Abramowitz and Stegun, 26.7.5: odd powers of the normal quantile, from the highest one down to the first."""
    z = Fraction("1.959964")
    handbook = {
        1: (1,),
        4: (1, 1),
        96: (5, 16, 3),
        384: (3, 19, 17, -15),
        92_160: (79, 776, 1_482, -1_920, -945),
    }
    expected = Fraction(0)
    for power, (divisor, coefficients) in enumerate(handbook.items()):
        odd = range(2 * len(coefficients) - 1, 0, -2)
        term = sum(each * z**exponent for each, exponent in zip(coefficients, odd, strict=True))
        expected += term / divisor / freedom**power
    assert robust.student_975(freedom) == pytest.approx(float(expected), rel=1e-13)


# --- means


def test_values_beyond_1_345_standard_deviations_count_less() -> None:
    """From 1 to 9 between the deciles are 2.5631 standard deviations; 0 and 10 are 5 off the middle."""
    found = robust.weights(np.arange(11.0))
    assert found.tolist() == pytest.approx([HUBER * 8 / 2.5631 / 5, *[1] * 9, HUBER * 8 / 2.5631 / 5])


@pytest.mark.parametrize(("value", "spread"), [(1_000.0, 1.0), (-1_000.0, 1.0), (0.0, 1e-12)])
def test_equal_values_have_a_spread_of_a_thousandth(value: float, spread: float) -> None:
    """The outlier pulls as much as a value of 1.345 standard deviations, which twenty others balance."""
    values = np.array([value] * 20 + [value + 10])
    given = robust.weights(values)
    assert given.tolist() == pytest.approx([1] * 20 + [HUBER * spread / (10 - HUBER * spread / 20)])
    assert np.average(values, weights=given) - value == pytest.approx(HUBER * spread / (20 + given[-1]), rel=0.01)


def test_the_standard_error_of_a_mean_by_hand() -> None:
    # deviations of 1.5, 0.5, 0.5 and 1.5: the variance is 5/3, of the mean of four 5/12
    assert robust.standard_error(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4)) == pytest.approx(sqrt(5 / 12))
    # the mean is 1: of (0, 0, 3) with weights 1, 1 and 1/2 * 2; 3 counts a half: -0.6, -0.6, 1.2
    found = robust.standard_error(np.array([0.0, 0.0, 3.0]), np.array([1.0, 1.0, 0.5]))
    assert found == pytest.approx(sqrt((0.36 + 0.36 + 1.44) * 3 / 2) / 2)
    # where none counts in full, as if one did
    assert robust.standard_error(np.array([0.0, 2.0]), np.array([0.5, 0.5])) == pytest.approx(1)
    assert robust.standard_error(np.array([5.0]), np.ones(1)) == inf


# --- lines


def mean_of(*measured: float, error: float = 1.0) -> LinearFit:
    """The line of a constant."""
    count = len(measured)
    return robust.solve(np.ones((count, 1)), np.array(measured), np.full(count, error))


def test_intervals_of_a_line_follow_from_the_stated_errors() -> None:
    for measured in ((7.0, 7.0, 7.0, 7.0), (6.0, 8.0, 6.0, 8.0)):
        found = mean_of(*measured, error=2.0)
        # the stated errors have three degrees of freedom more
        assert (found.values[0], found.half_widths[0]) == (pytest.approx(7), pytest.approx(T[6], rel=1e-3))
    # one value for one coefficient
    alone = mean_of(7.0, error=2.0)
    assert (alone.values[0], alone.half_widths[0]) == (pytest.approx(7), pytest.approx(2 * T[3], rel=2e-3))


def test_larger_residuals_widen_the_intervals() -> None:
    """Of four values with an error of 1, residuals of 1.5 count with the error as a fifth; of 2.2 they count alone."""
    found = mean_of(0, 0, 3, 3)
    assert found.half_widths[0] == pytest.approx(T[4] * sqrt((1 + 4 * 1.5**2) / 4) / 2, rel=1e-3)
    found = mean_of(0, 0, 4.4, 4.4)
    assert found.half_widths[0] == pytest.approx(T[3] * sqrt(4 * 2.2**2 / 3) / 2, rel=2e-3)
    # of two values there is one degree of freedom
    found = mean_of(0, 2.2)
    assert found.half_widths[0] == pytest.approx(T[2] * sqrt((1 + 2 * 1.1**2) / 2) / sqrt(2), rel=1e-3)
    # up to twice as large the stated error counts
    found = mean_of(0, 0, 3.46, 3.46)
    assert found.half_widths[0] == pytest.approx(T[4] * sqrt((1 + 4 * 1.73**2) / 4) / 2, rel=1e-3)


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0, 3.0, 6.0])
@pytest.mark.parametrize("freedom", [3, 5, 8])
def test_intervals_hold_where_the_stated_errors_are_too_small(freedom: int, ratio: float) -> None:
    """Of 4000 values with a true error of so many stated ones, nine tenths are within the interval."""
    drawn = np.random.default_rng(round(10 * ratio) + freedom)
    squares, values = ratio**2 * drawn.chisquare(freedom, 4_000), ratio * drawn.standard_normal(4_000)
    inside = [abs(value) <= robust.widening(square, freedom) for value, square in zip(values, squares, strict=True)]
    assert 0.9 <= np.mean(inside) < 1


def test_with_one_residual_intervals_hold_up_to_twice_the_stated_errors() -> None:
    drawn = np.random.default_rng(2)
    squares, values = 4 * drawn.chisquare(1, 4_000), 2 * drawn.standard_normal(4_000)
    inside = [abs(value) <= robust.widening(square, 1) for value, square in zip(values, squares, strict=True)]
    assert 0.93 <= np.mean(inside) < 1


def test_an_outlier_of_a_line_pulls_like_1_345_errors() -> None:
    found = mean_of(*[0] * 8, 100)
    assert found.values[0] == pytest.approx(HUBER / 8)
    # its weight is 1.345 over its distance
    weight = HUBER / (100 - HUBER / 8)
    stretch = sqrt((8 * (HUBER / 8) ** 2 + weight * (100 - HUBER / 8) ** 2) / 8)
    expected = robust.student_975(8) * stretch / sqrt(8 + weight)
    assert found.half_widths[0] == pytest.approx(expected)


def test_the_scatter_of_a_line_is_its_median_residual() -> None:
    """Four at -2 and four at 2; the outlier pulls with 1.345 x 1.4826 median residuals, which are 2 and the pull."""
    pull = HUBER * 1.4826
    assert mean_of(*[-2] * 4, *[2] * 4, 1_000).values[0] == pytest.approx(2 * pull / (8 - pull), rel=1e-3)


def test_errors_weigh_the_points_of_a_line() -> None:
    """5 with an error of 1 and 4 with an error of 2: the weights are 4 to 1, and 1 / (1 + 1/4) is the variance."""
    found = robust.solve(np.ones((2, 1)), np.array([5.0, 4.0]), np.array([1.0, 2.0]))
    assert found.values[0] == pytest.approx((4 * 5 + 4) / 5)
    # their residuals are 0.2 errors and 0.4
    assert found.half_widths[0] == pytest.approx(T[2] * sqrt((1 + 0.2**2 + 0.4**2) / 2) * sqrt(4 / 5), rel=1e-3)


def line_of(design: list[list[float]], measured: list[float]) -> list[float]:
    found: list[float] = robust.solve(np.array(design), np.array(measured), np.ones(len(measured))).values.tolist()
    return found


def test_coefficients_are_not_negative() -> None:
    # 2 x - 2: the slope alone is 16/14, and better than the constant
    assert line_of([[1, 1], [2, 1], [3, 1]], [0, 2, 4]) == pytest.approx([16 / 14, 0])
    # the same with the columns exchanged
    assert line_of([[1, 1], [1, 2], [1, 3]], [0, 2, 4]) == pytest.approx([0, 16 / 14])
    # 3 - x: the mean of 2, 1 and 0 is better than any slope
    assert line_of([[1, 1], [2, 1], [3, 1]], [2, 1, 0]) == pytest.approx([0, 1])
    assert line_of([[1, 1], [2, 1], [3, 1]], [-1, -1, -2]) == [0, 0]
    assert line_of([[1, 1], [2, 1], [3, 1]], [3, 5, 7]) == pytest.approx([2, 1])


def test_two_of_three_coefficients_may_remain() -> None:
    """y = x + 2 z - w / 10: without the third column the other two are better than any one of them."""
    design: list[list[float]] = [[1, 0, 1], [0, 1, 1], [1, 1, 1], [2, 1, 1]]
    measured = [0.9, 1.9, 2.9, 3.9]
    x, z = np.linalg.lstsq(np.array(design)[:, :2], np.array(measured), rcond=None)[0]
    assert line_of(design, measured) == pytest.approx([x, z, 0])
    order = [1, 2, 0]
    assert line_of([[row[each] for each in order] for row in design], measured) == pytest.approx([z, 0, x])


@pytest.mark.parametrize(("apart", "is_solvable"), [(0.180, False), (0.186, True)])
def test_columns_that_hardly_differ_determine_nothing(apart: float, is_solvable: bool) -> None:
    """The product of both strengths is the distance, the sum of their squares 3 + (1 - distance)^2; a ratio of 0.05."""
    for scale in (1.0, -1e9):
        design = np.array([[1.0, scale * (1 - apart)], [1.0, scale]])
        assert robust.is_solvable(design) is is_solvable


def test_a_line_needs_as_many_points_as_columns_and_no_empty_column() -> None:
    assert robust.is_solvable(np.array([[2.0]]))
    assert not robust.is_solvable(np.array([[1.0, 2.0]]))
    assert not robust.is_solvable(np.array([[1.0, 0.0], [2.0, 0.0]]))
    assert robust.is_solvable(np.array([[1.0, 0.0], [0.0, 1.0]]))


def test_the_rate_is_all_bytes_over_all_time() -> None:
    """400 bytes in 40 ns, not the mean of 20 and 6.7 bytes/ns; off by 100 and -100 bytes: one degree of freedom."""
    found = throughput_of_batches(np.array([200, 200]), np.array([10, 30]))
    assert found.value == pytest.approx(10e9)
    half = 12.7062 * sqrt(2 * 100**2 * 2) / 40
    assert found.high == pytest.approx((10 + half) * 1e9)
    # no throughput is less than nothing
    assert found.low == 0.0


def test_cycles_of_one_length_leave_no_doubt() -> None:
    found = throughput_of_batches(np.full(50, 7), np.full(50, 2))
    assert (found.low, found.value, found.high) == (3.5e9, 3.5e9, 3.5e9)


def cycles(draw: np.random.Generator, count: int, memory: float) -> np.ndarray:
    """Lengths around 100 ns of which each keeps a share of the deviation of the one before."""
    off = np.zeros(count)
    for place in range(count):
        off[place] = memory * (off[place - 1] if place else 0.0) + draw.normal(scale=5 * sqrt(1 - memory**2))
    return 100 + off


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_the_interval_has_the_truth_also_where_cycles_depend_on_each_other(memory: float) -> None:
    """10 bytes/ns is in 95 % of the intervals; single cycles as evidence would miss it in two of five."""
    draw = np.random.default_rng(7143)
    held = held_alone = 0
    for _ in range(300):
        lengths = cycles(draw, 400, memory)
        found = throughput_of_batches(np.full(400, 1_000.0), lengths)
        held += found.low <= 10e9 <= found.high
        half = robust.student_975(399) * lengths.std(ddof=1) / 20
        held_alone += abs(lengths.mean() - 100) <= half
    assert 0.92 <= held / 300 <= 0.99
    if memory:
        assert held_alone / 300 < 0.7
