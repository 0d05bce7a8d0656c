"""No count of an input makes the work grow faster than n log n: the small form of `python -m bench.growth`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.growth.__main__ import Growth


@pytest.mark.parametrize(
    ("cpu_s", "is_worse"),
    [
        ([0.01, 0.04, 0.08, 0.29], False),  # small
        ([0.1, 0.2, 0.4, 0.8], False),
        ([0.0, 0.21, 0.44, 0.97], False),  # n log n
        ([0.01, 0.04, 0.16, 0.64], True),
        ([0.4, 0.5, 1.0, 3.0], True),  # a square beside much that is linear
    ],
)
def test_a_square_is_seen(cpu_s: list[float], is_worse: bool) -> None:
    assert Growth("family", "command", [1, 2, 4, 8], cpu_s).is_worse == is_worse


def test_no_count_of_an_input_makes_diagnose_grow_with_its_square() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.growth", "--small"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
