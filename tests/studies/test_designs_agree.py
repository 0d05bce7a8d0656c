"""Every design of our initiator is as fast in the simulated world as over the kernel's TCP, with the same host delays.

The kernel's side runs in real time beside other programs, which can only slow it down. So a setting is run up to four
times, and no run may be faster than the simulation allows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import designs
from tests.support.lab import needs_root

ATTEMPTS = 4
ERROR = 0.1


@needs_root
@pytest.mark.parametrize("design", designs.DESIGNS)
def test_a_design_in_both_worlds(design: str) -> None:
    setting = designs.Setting(64 << 10, designs.RATE_BPS, 0.5, designs.DESIGNS[design])
    errors = []
    for _ in range(ATTEMPTS):
        real = designs.kernel(setting)
        # the simulation gets only the measured host delays
        predicted = designs.simulated(replace(setting, hosts=real.hosts))
        errors.append(real.throughput_bytes_per_s / predicted - 1)
        assert errors[-1] < ERROR
        if abs(errors[-1]) < ERROR:
            assert real.cpu_s_per_gigabyte > 0
            return
    pytest.fail(f"the kernel's throughput differs by {errors}")
