"""What a trace says of one sender, against the congestion window that its TCP had.

The truth is the simulated TCP's window at every change, the kernel's TCP_INFO every 20 ms (``lab run``), or its
tcp_probe at every segment (recordings). This file reads no capture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iscsitrace.tables.trace import TraceTables

TABLES = ("window", "retransmissions", "senders", "recoveries", "segments")
BUSY_BYTES = 30_000
"""A sender that never has more in flight shows no window."""
_SYN = 0x02

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Known:
    """The congestion window of one sender: from each time on, in bytes."""

    time_ns: Numbers
    cwnd_bytes: Numbers

    def at(self, time_ns: Numbers) -> Numbers:
        """The window at these times; before the first one, the first."""
        place = np.searchsorted(self.time_ns, time_ns, side="right") - 1
        return self.cwnd_bytes[np.maximum(place, 0)]


@dataclass(frozen=True)
class Estimates:
    """The rows of one sender in the table ``window``."""

    time_ns: Numbers
    estimate_bytes: Numbers
    is_valid: npt.NDArray[np.bool_]
    owin_bytes: Numbers

    @property
    def lasting_ns(self) -> Numbers:
        """How long each row is valid."""
        return np.diff(self.time_ns, append=self.time_ns[-1:])

    @property
    def is_busy(self) -> bool:
        """Whether there was ever enough in flight to show a window."""
        return len(self.owin_bytes) > 0 and int(self.owin_bytes.max()) >= BUSY_BYTES


@dataclass(frozen=True)
class Errors:
    """Relative errors where there is an estimate, weighted by time, and the share of the busy time with an estimate.

    NaN without an estimate.
    """

    median: float
    p95: float
    share_valid: float


def estimates(trace: TraceTables, *, to_target: bool, connection: int = 0) -> Estimates:
    """What a trace says of the window of one sender."""
    window = trace.window
    rows = (window["to_target"] == to_target) & (window["connection"] == connection)
    estimate = np.ma.filled(np.ma.asarray(window["cwnd_estimate_bytes"]), 0)
    return Estimates(
        np.asarray(window["time_ns"])[rows],
        np.asarray(estimate)[rows],
        np.asarray(window["is_valid"])[rows],
        np.asarray(window["owin_bytes"])[rows],
    )


def errors(found: Estimates, known: Known, *, is_sampled: bool = False) -> Errors:
    """Errors of the estimates; a sampled truth is compared only at its samples."""
    if is_sampled:
        found = _at_samples(found, known)
    truth = known.at(found.time_ns).astype(float)
    lasting = np.ones_like(found.time_ns) if is_sampled else found.lasting_ns
    busy, valid = found.owin_bytes > 0, found.is_valid
    off = np.abs(found.estimate_bytes - truth) / truth
    return Errors(
        _percentile(off[valid], lasting[valid], 50),
        _percentile(off[valid], lasting[valid], 95),
        float(lasting[valid & busy].sum() / max(lasting[busy].sum(), 1)),
    )


def _percentile(values: npt.NDArray[np.float64], weights: Numbers, percent: float) -> float:
    if not len(values) or weights.sum() <= 0:
        return float("nan")
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, passed[-1] * percent / 100)])


def _at_samples(found: Estimates, known: Known) -> Estimates:
    """The rows that are valid at the times of the truth."""
    instants = known.time_ns[(known.time_ns >= found.time_ns[0]) & (known.time_ns <= found.time_ns[-1])]
    place = np.searchsorted(found.time_ns, instants, side="right") - 1
    return Estimates(instants, found.estimate_bytes[place], found.is_valid[place], found.owin_bytes[place])


def end_of(truth: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    """The log of one end of the only connection of a simulation or a run."""
    ((end,),) = ([truth["initiator_ends"]], truth["target_ends"])[side == "target"]
    found: Mapping[str, Any] = end
    return found


def of_truth(end: Mapping[str, Any]) -> Known:
    """The window of one end, from the truth of a simulation or a run."""
    windows = end["windows"]
    return Known(np.asarray(windows["time_ns"]), np.asarray(windows["cwnd"]) * end["snd_mss"])


def of_probe(time_ns: npt.ArrayLike, cwnd_bytes: npt.ArrayLike) -> Known | None:
    """The window by tcp_probe, which tells of each segment the window before it was processed: that is the window since
    the row before. None without two rows.
    """
    times, windows = np.asarray(time_ns), np.asarray(cwnd_bytes)
    return Known(times[:-1], windows[1:]) if len(times) > 1 else None


def resent_count(trace: TraceTables, *, to_target: bool) -> int:
    """What one side sent again, as hosts count it: with repeated SYNs. Needs the table ``segments``."""
    segments = trace.segments
    is_syn = (segments.raw("flags") & _SYN != 0) & (segments.raw("to_target") == to_target)
    syns = segments.raw("connection")[is_syn].tolist()
    return int((trace.retransmissions.raw("to_target") == to_target).sum()) + len(syns) - len(set(syns))
