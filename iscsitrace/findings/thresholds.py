"""Thresholds that several findings share, each with its reason. Computes nothing."""

from __future__ import annotations

from typing import Final

from iscsitrace.wording import amounts as wording

MILLISECOND_NS: Final = 1_000_000

WORTH_A_CHANGE: Final = 0.05
"""Least share of the I/O time. A fix saves at most what the problem costs, and two runs of the same job differ by as
much as this."""

LOSS_SHARE: Final = 0.01
"""Least share of the I/O time in recovery. A loss also keeps the congestion window small long after the recovery, so
it costs more than the recovery shows."""

WARNING: Final = 0.20
"""Share of the I/O time from which a finding is a warning instead of a note: users notice this much."""

LIMIT: Final = 1 / 3
"""Share of the I/O time from which a limit is the limit of a session: below it is one of several waits."""

CONTRAST: Final = 5
"""Least factor between medians of latency for one operation or LUN to be slow beside the others: beyond what sizes and
caches make of the same storage."""

SHOWN_FRAMES: Final = 12
"""Most frames that a finding shows: four frames for each of three commands."""

FULL: Final = 0.8
"""Least share of the I/O time in transfer for a line to be full: it idles at the start and the end of a burst."""

WORTH: Final = f"at least {wording.percent(WORTH_A_CHANGE)} of the I/O time"
