"""Thresholds that several findings share, each with its reason. It computes nothing."""

from __future__ import annotations

from typing import Final

from iscsitrace.wording import amounts as wording

MILLISECOND_NS: Final = 1_000_000

WORTH_A_CHANGE: Final = 0.05
"""Share of the jobs' time: what a remedy can win is at most what the disease costs, and under a twentieth two runs of
the same job differ by as much."""

WARNING: Final = 0.20
"""Share of the jobs' time from which a finding is a warning, no longer a note: a fifth is felt without measuring."""

SHOWN_FRAMES: Final = 12
"""Frames that a finding shows: three tasks with the four frames of each."""

WORTH: Final = f"at least {wording.percent(WORTH_A_CHANGE)} of the jobs' time"
