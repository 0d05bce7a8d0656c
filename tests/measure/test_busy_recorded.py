"""The busy time of recorded captures, against the clocks of the programs that did the I/O."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.measure import budget
from tests.support.recordings import description_of, recorded_captures

SECOND = 1_000_000_000
LEFT_OUT = ("06_two", "07_", "09_", "15_", "16_", "20_", "22_", "24_", "34_")
"""Two programs at a time on one processor; jobs of four commands, whose pauses show no steady work; outages, in which
the program waits without a command in flight; a capture without the statuses."""


def _program_s(capture: Path) -> float | None:
    """The seconds that the programs printed for their I/O; None where one printed none."""
    description = description_of(capture)
    assert description
    jobs = json.loads(description.read_text())["io"]
    is_known = all(job["cmd"].startswith(("dd ", "fio ")) and job.get("seconds") for job in jobs)
    return sum(job["seconds"] for job in jobs) if jobs and is_known else None


CAPTURES = [
    pytest.param(capture, program_s, id=capture.name)
    for capture in recorded_captures()
    if not capture.name.startswith(LEFT_OUT) and (program_s := _program_s(capture))
]


@pytest.mark.skipif(not CAPTURES, reason="no recorded captures")
@pytest.mark.parametrize(("capture", "program_s"), CAPTURES)
def test_the_busy_time_is_that_of_the_programs(capture: Path, program_s: float) -> None:
    """Without the scan, and without the pauses between programs; with the reads of the kernel that follow a scan."""
    trace = iscsitrace.read(capture, tables=("budget",))
    (whole,) = (each for each in budget.of_sessions(trace.budget).values() if each.jobs_ns)
    early = trace.cycles.select(trace.cycles.raw("bytes") == 4096)
    early_s = int((early["status_ns"] - early["command_first_ns"]).sum()) / SECOND
    assert whole.jobs_ns / SECOND - early_s == pytest.approx(program_s, rel=0.06)
    assert sum(whole.uses_ns.values()) > 1 * SECOND
