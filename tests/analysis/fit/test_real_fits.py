"""The fit of recorded captures of kernels against what was configured: one-way delays, R2T rounds, delays left out."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.analysis.fit.points import Point
from iscsitrace.analysis.fit.steady import NEEDED, survey
from tests.support.recordings import recorded_captures

CAPTURES = recorded_captures()

needs_captures = pytest.mark.skipif(not CAPTURES, reason="no recorded captures")


@functools.cache
def points_of(file: Path) -> tuple[Point, ...]:
    return survey(iscsitrace.read(file, tables=NEEDED).table, file.name).points


@needs_captures
@pytest.mark.parametrize("file", CAPTURES, ids=lambda file: file.name)
def test_one_command_at_a_time_pays_the_delays_of_its_legs(file: Path) -> None:
    """A read pays 2, a write 2 and 2 for each R2T: no host time is among them."""
    for point in points_of(file):
        if point.seen.k is None or point.setting.is_status_held:
            continue
        rounds = 0
        if point.setting.operation == "write":
            keys = point.setting.solicitation
            unsolicited = min(point.setting.block_bytes, keys.first_burst_bytes) if keys.is_immediate_data else 0
            if keys.is_initial_r2t:
                unsolicited = min(unsolicited, keys.max_recv_data_segment_bytes)
            rounds = -(-(point.setting.block_bytes - unsolicited) // keys.max_burst_bytes)
        assert point.seen.k.value == pytest.approx(2 + 2 * rounds, rel=0.02), point.name
