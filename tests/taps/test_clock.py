"""The clock of one tap against another's: by samples whose true offset is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iscsitrace.taps.clock import Clock, fit, synchronised
from iscsitrace.taps.envelope import Samples, _strictest

MS = 1_000_000
START_NS = 1_700_000_000 * 1_000 * MS


def true_offset(time_ns: np.ndarray, drift_ppm: float, step_ns: int, step_at_ns: int, shift_ns: int) -> np.ndarray:
    """Offset of B at times of A, by definition."""
    passed = time_ns - START_NS
    return shift_ns + np.rint(passed * drift_ppm / 1e6).astype(np.int64) + np.where(passed >= step_at_ns, step_ns, 0)


def samples(
    seed: int,
    *,
    count: int = 400,
    seconds: float = 10.0,
    out_ns: int = 4 * MS,
    back_ns: int = 4 * MS,
    jitter_ns: int = 0,
    drift_ppm: float = 0.0,
    shift_ns: int = 0,
    step_ns: int = 0,
) -> tuple[Samples, np.ndarray]:
    """Samples of both directions, and the true offset at each."""
    chance = np.random.default_rng(seed)
    time_ns = START_NS + np.sort(chance.integers(0, int(seconds * 1e9), count))
    is_out = np.arange(count) % 2 == 0
    offset = true_offset(time_ns, drift_ppm, step_ns, int(seconds * 5e8), shift_ns)
    late = chance.integers(0, jitter_ns + 1, count)
    delay = np.where(is_out, out_ns + late, -(back_ns + late))
    return Samples(time_ns, offset + delay, is_out), offset


def fitted(given_samples: Samples, most_steps: int = 1) -> Clock:
    clock = fit(given_samples, most_steps)
    assert clock is not None
    return clock


@pytest.mark.parametrize("shift_ns", [0, 7, -3 * MS, 3_600_000 * MS, -50 * 365 * 86_400_000 * MS])
@pytest.mark.parametrize("drift_ppm", [0.0, 0.5, -20.0, 200.0])
def test_shift_and_drift_are_found_to_a_microsecond(shift_ns: int, drift_ppm: float) -> None:
    given_samples, offset = samples(1, shift_ns=shift_ns, drift_ppm=drift_ppm)
    clock = fitted(given_samples)
    # lines whose margins differ by a microsecond are equal
    assert np.abs(clock.offset_at(given_samples.time_ns) - offset).max() <= 2_100
    assert clock.drift_ppm == pytest.approx(drift_ppm, abs=0.5)


@given(
    seed=st.integers(0, 1000),
    out_ns=st.integers(0, 20 * MS),
    back_ns=st.integers(0, 20 * MS),
    jitter_ns=st.sampled_from([0, 100_000, 5 * MS]),
    drift_ppm=st.floats(-200, 200),
)
@settings(max_examples=60, deadline=None)
def test_the_truth_is_within_bounds_that_are_at_most_half_the_least_rtt(
    seed: int, out_ns: int, back_ns: int, jitter_ns: int, drift_ppm: float
) -> None:
    given_samples, _ = samples(
        seed, out_ns=out_ns, back_ns=back_ns, jitter_ns=jitter_ns, drift_ppm=drift_ppm, shift_ns=5 * MS
    )
    clock = fitted(given_samples)
    truth = int(true_offset(np.array([clock.reference_ns]), drift_ppm, 0, 0, 5 * MS)[0])
    # drift is rounded to nanoseconds per sample, slopes to 1e-11
    assert clock.low_ns - 10 <= truth <= clock.high_ns + 10
    # of two samples that follow each other, with the greatest jitter at most
    assert clock.high_ns - clock.low_ns <= out_ns + back_ns + 2 * jitter_ns + 20


def test_unequal_delays_move_the_offset_by_half_their_difference() -> None:
    given_samples, offset = samples(3, out_ns=2 * MS, back_ns=12 * MS)
    assert fitted(given_samples).offset_ns == offset[0] - 5 * MS


@pytest.mark.parametrize("step_ns", [50 * MS, -30 * MS, 3 * MS, 3_600_000 * MS])
def test_a_step_is_found_with_its_size(step_ns: int) -> None:
    given_samples, offset = samples(4, step_ns=step_ns, drift_ppm=20.0)
    clock = fitted(given_samples)
    ((at_ns, size_ns),) = clock.steps_ns
    assert size_ns == pytest.approx(step_ns, abs=3_000)
    assert at_ns == pytest.approx(START_NS + 5_000 * MS, abs=100 * MS)
    assert np.abs(clock.offset_at(given_samples.time_ns) - offset).max() < 3_000


def test_a_clock_that_is_set_back_at_tap_a_is_followed_by_the_order_of_packets() -> None:
    """Its times after the step begin before those that precede it."""
    given_samples, _ = samples(5)
    half = len(given_samples) // 2
    back = np.where(np.arange(len(given_samples)) >= half, -100 * MS, 0)
    clock = fitted(Samples(given_samples.time_ns + back, given_samples.raw_ns - back, given_samples.is_a_first))
    ((from_ns, to_ns),) = clock.unsure
    assert [size for _, size in clock.steps_ns] == [100 * MS]
    assert (from_ns, to_ns) == (int(given_samples.time_ns[half]) - 100 * MS, int(given_samples.time_ns[half - 1]))


def test_more_steps_than_allowed_are_no_clock() -> None:
    given_samples, _ = samples(6, step_ns=50 * MS)
    assert fit(given_samples, 0) is None


@pytest.mark.parametrize("direction", ["out", "back", "both"])
def test_a_queue_that_fills_is_no_step(direction: str) -> None:
    """The enemy of the rule: the delay of one direction, or of both, grows by 20 ms from one packet to the next."""
    given_samples, offset = samples(7)
    later = np.arange(len(given_samples)) >= len(given_samples) // 2
    out, back = direction != "back", direction != "out"
    raw = given_samples.raw_ns + np.where(later & given_samples.is_a_first & out, 20 * MS, 0)
    raw -= np.where(later & ~given_samples.is_a_first & back, 20 * MS, 0)
    clock = fitted(Samples(given_samples.time_ns, raw, given_samples.is_a_first))
    assert clock.steps_ns == []
    assert np.abs(clock.offset_at(given_samples.time_ns) - offset).max() < 2_100


def test_a_clock_whose_rate_changes_has_a_line_for_each_rate() -> None:
    given_samples, _ = samples(8, seconds=600.0, out_ns=MS, back_ns=MS)
    bent = np.rint(np.abs(given_samples.time_ns - START_NS - 300_000 * MS) * 50e-6).astype(np.int64)
    clock = fitted(Samples(given_samples.time_ns, given_samples.raw_ns + bent, given_samples.is_a_first), 8)
    assert np.abs(clock.offset_at(given_samples.time_ns) - bent).max() < MS


def test_times_of_b_and_back() -> None:
    given_samples, offset = samples(9, drift_ppm=150.0, shift_ns=-12 * MS)
    clock = fitted(given_samples)
    back = clock.to_a(given_samples.time_ns + offset, given_samples.time_ns)
    assert np.abs(back - given_samples.time_ns).max() < 2_100


def test_one_direction_shows_no_clock() -> None:
    given_samples, _ = samples(10)
    assert fit(given_samples.select(given_samples.is_a_first), 1) is None


def test_synchronised_clocks_are_equal() -> None:
    times = np.array([START_NS, START_NS + MS])
    assert synchronised().offset_at(times).tolist() == [0, 0]
    assert synchronised().to_a(times, times).tolist() == times.tolist()


@given(st.integers(0, 9_999), st.integers(1, 7_000))
@settings(deadline=None)
def test_of_each_stretch_of_equal_count_the_strictest_sample_limits_the_clock(seed: int, count: int) -> None:
    value = np.random.default_rng(seed).integers(-50, 50, count)
    # few samples limit it all
    length = -(-count // 2_000)
    stretches = [range(first, min(first + length, count)) for first in range(0, count, length)]
    assert _strictest(value).tolist() == [
        min(stretch, key=lambda place: (value[place], place)) for stretch in stretches
    ]
