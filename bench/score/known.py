"""What is known of a run: by the kernels and the network of a recording, or by the simulated world.

This file judges nothing, and reads no capture itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.budget import link, runs
from bench.budget.cases import Case
from bench.budget.outcomes import outcomes_of
from bench.recordings import Recording, Sender
from bench.senders import Known, end_of, of_truth

RECORDED, PUBLIC, SIMULATED = "recorded", "public", "simulated"
LEAST_BUSY_MS = 100
"""Kernels count in steps of some ms: of less busy time a share tells nothing."""
_MS_NS = 1_000_000
_LIMITS = {
    "rwnd_limited_ns": "receive_window",
    "cwnd_limited_ns": "congestion_window",
    "sndbuf_limited_ns": "send_buffer",
}


@dataclass(frozen=True)
class Limited:
    """The time in which something held a sender, of its busy time."""

    true_ns: float
    busy_ns: float
    is_least: bool = False
    """Whether it was at least this long: Linux counts a full send buffer only while nothing is queued."""

    def points(self, found_ns: float) -> float:
        """The error of a time in percentage points of the busy time."""
        off_ns = found_ns - self.true_ns
        return 100 * (min(off_ns, 0) if self.is_least else off_ns) / self.busy_ns


@dataclass(frozen=True)
class SenderKnown:
    """What is known of one sender."""

    side: str
    initiator_port: int
    windows: Mapping[str, Known | None]
    """Its congestion window on the clock of each tap."""
    limited: Mapping[str, Limited]
    """By column of the table ``senders``."""
    rtt_ms: Mapping[str, float]
    """``least``, and the median under ``load``."""
    rate_bps: int | None
    """Of the line that it sends over."""


@dataclass(frozen=True)
class RunKnown:
    """What is known of a run; what nobody knows is empty or None."""

    source: str
    name: str
    captures: Mapping[str, Path]
    """By tap."""
    senders: tuple[SenderKnown, ...] = ()
    resent_counts: Mapping[str, int] = field(default_factory=dict)
    """By side, SYNs included."""
    delays_ms: Mapping[str, float] = field(default_factory=dict)
    """Median one-way delays by direction."""
    headlines: frozenset[str] = frozenset()
    limiters: frozenset[str] = frozenset()
    """The right ones."""
    is_limiter_right: Mapping[str, bool] = field(default_factory=dict)
    """By tap, where `bench.budget` judges the time breakdown from the first command to the last status."""


def of_recording(recording: Recording) -> RunKnown:
    """The counts and measurements of both kernels and the network."""
    expected = recording.truth.get("expected", {})
    busy = [each for each in recording.senders if each.times_ms["busy"] >= LEAST_BUSY_MS]
    return RunKnown(
        RECORDED,
        recording.name,
        recording.captures,
        tuple(_of_kernel(recording, sender) for sender in busy),
        recording.resent_counts,
        recording.median_delay_ms,
        # some names are followed by a remark
        frozenset(words.split()[0] for words in expected.get("headline", ())),
        frozenset(expected.get("limiter", ())),
    )


def _of_kernel(recording: Recording, sender: Sender) -> SenderKnown:
    busy_ns = sender.times_ms["busy"] * _MS_NS
    limited = {
        "rwnd_limited_ns": Limited(sender.times_ms["rwnd_limited"] * _MS_NS, busy_ns),
        "sndbuf_limited_ns": Limited(sender.times_ms["sndbuf_limited"] * _MS_NS, busy_ns, is_least=True),
    }
    if sender.cwnd_limited_ns:
        limited["cwnd_limited_ns"] = Limited(*sender.cwnd_limited_ns)
    windows = {tap: sender.windows(recording.ahead_ns(sender.side, tap)) for tap in recording.captures}
    rate_bps = recording.rate_bps(sender.side)
    return SenderKnown(sender.side, sender.initiator_port, windows, limited, sender.rtt_ms, rate_bps)


def of_case(case: Case, folder: Path, seed: int) -> RunKnown:
    """A run in the simulated world, and the logs of its link and hosts."""
    made = runs.make(case, SIMULATED, folder, seed)
    limited_ns = made.parts.limited_ns() if case.is_judged else None
    transits_ms = {way: _transits_ms(made.truth, way) for way in link.NEAR}
    delays_ms = {way: float(np.median(each)) for way, each in transits_ms.items()}
    rtt_ms = {"least": float(sum(each.min() for each in transits_ms.values())), "load": sum(delays_ms.values())}
    return RunKnown(
        SIMULATED,
        case.name,
        made.files,
        tuple(_of_end(made, side, limited_ns, rtt_ms) for side in case.senders),
        {side: end_of(made.truth, side)["retransmitted_segment_count"] for side in runs.TAPS},
        delays_ms,
        is_limiter_right={each.tap: each.is_right for each in outcomes_of(made)} if case.is_judged else {},
    )


def _of_end(
    made: runs.Made, side: str, limited_ns: Mapping[str, int] | None, rtt_ms: Mapping[str, float]
) -> SenderKnown:
    end = end_of(made.truth, side)
    limited = {
        column: Limited(limited_ns[limit], limited_ns["busy"]) for column, limit in _LIMITS.items() if limited_ns
    }
    windows = dict.fromkeys(made.files, of_truth(end))
    return SenderKnown(side, end["initiator_port"], windows, limited, rtt_ms, made.case.rate_bps)


def _transits_ms(truth: Mapping[str, Any], way: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    packets = truth["paths"][0][way]["packets"]
    return np.array(
        [(each["time_out_ns"] - each["time_in_ns"]) / _MS_NS for each in packets if each["fate"] == "delivered"]
    )
