"""The throughput of cycles with its interval: by hand, and how often it has the truth."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from iscsitrace.fit import robust
from iscsitrace.fit.robust import throughput_of_batches


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
