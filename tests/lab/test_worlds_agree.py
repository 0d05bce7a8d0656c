"""The simulated world is as fast as the kernel's TCP over the same link, with and without losses.

The kernel's side runs in real time beside other programs, which can only slow it down. So a setting is run up to eight
times, the fastest counts, and no run may be faster than the simulation allows.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from bench import worlds
from tests.support.lab import needs_root

ATTEMPTS = 8
THROUGHPUT_ERROR, LOSS_ERROR = 0.05, 0.15
LOSS_SEEDS = 6


@needs_root
@pytest.mark.parametrize("delay_ms", worlds.DELAYS_MS)
def test_throughput_at_a_delay(delay_ms: int) -> None:
    setting = worlds.of_delay(delay_ms, seconds=0.7)
    errors = []
    for _ in range(ATTEMPTS):
        real, hosts = worlds.kernel_and_hosts(setting)
        # the simulation gets only the measured host delays
        errors.append(real / worlds.simulated(replace(setting, hosts=hosts)) - 1)
        assert errors[-1] < THROUGHPUT_ERROR
        if abs(errors[-1]) < THROUGHPUT_ERROR:
            return
    pytest.fail(f"the kernel's throughput differs by {errors}")


@needs_root
def test_throughput_with_losses() -> None:
    _, hosts = worlds.kernel_and_hosts(worlds.of_delay(4, seconds=0.7))
    settings = list(worlds.of_loss(LOSS_SEEDS, hosts, total_bytes=8 << 20))
    lossless = worlds.simulated(worlds.of_delay(settings[0].delay_ms))
    simulated = [worlds.simulated(setting) for setting in settings]
    # losses limit, not the delay
    assert statistics.mean(simulated) < 0.75 * lossless
    expected = pytest.approx(statistics.mean(simulated), rel=LOSS_ERROR)
    kernel = [0.0] * len(settings)
    for _ in range(ATTEMPTS):
        kernel = [max(before, worlds.kernel(setting)) for before, setting in zip(kernel, settings, strict=True)]
        if statistics.mean(kernel) == expected:
            break
    assert statistics.mean(kernel) == expected
