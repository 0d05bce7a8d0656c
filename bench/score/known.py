"""What is known of a run: by the kernels and the network of a recording, or by the simulated world.

This file judges nothing, and reads no capture itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import nan
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
_SEGMENT_BYTES = 1000
"""A packet of this size is a segment of a stream of data."""
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
    least_ms = float(sum(each.min() for each in transits_ms.values()))
    return RunKnown(
        SIMULATED,
        case.name,
        made.files,
        tuple(_of_end(made, side, limited_ns, least_ms) for side in case.senders),
        {side: end_of(made.truth, side)["retransmitted_segment_count"] for side in runs.TAPS},
        delays_ms,
        is_limiter_right={each.tap: each.is_right for each in outcomes_of(made)} if case.is_judged else {},
    )


def _of_end(made: runs.Made, side: str, limited_ns: Mapping[str, int] | None, least_ms: float) -> SenderKnown:
    end = end_of(made.truth, side)
    limited = {
        column: Limited(limited_ns[limit], limited_ns["busy"]) for column, limit in _LIMITS.items() if limited_ns
    }
    windows = dict.fromkeys(made.files, of_truth(end))
    rtt_ms = {"least": least_ms, "load": _rtt_under_load_ms(made.truth, side)}
    return SenderKnown(side, end["initiator_port"], windows, limited, rtt_ms, made.case.rate_bps)


def _transits_ms(truth: Mapping[str, Any], way: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([(to_ns - from_ns) / _MS_NS for from_ns, to_ns, _ in _delivered(truth, way)])


def _rtt_under_load_ms(truth: Mapping[str, Any], side: str) -> float:
    """The median over the segments of a sender: the time of each on the network, and that of the packet that is next to
    leave the receiver. What a host holds back is no part of it.
    """
    back, out = sorted(link.NEAR, key=lambda way: link.NEAR[way] == side)
    segments = [(from_ns, to_ns) for from_ns, to_ns, size in _delivered(truth, out) if size >= _SEGMENT_BYTES]
    answers = sorted((from_ns, to_ns - from_ns) for from_ns, to_ns, _ in _delivered(truth, back))
    next_of = np.searchsorted([from_ns for from_ns, _ in answers], [to_ns for _, to_ns in segments])
    rtts_ns = [
        to_ns - from_ns + answers[place][1]
        for (from_ns, to_ns), place in zip(segments, next_of.tolist(), strict=True)
        if place < len(answers)
    ]
    return float(np.median(rtts_ns)) / _MS_NS if rtts_ns else nan


def _delivered(truth: Mapping[str, Any], way: str) -> Iterator[tuple[int, int, int]]:
    """When each delivered packet entered a way and left it, and its bytes."""
    for each in truth["paths"][0][way]["packets"]:
        if each["fate"] == "delivered":
            yield each["time_in_ns"], each["time_out_ns"], each["bytes"]
