"""Throughput of a mirror under losses: its connections wait for each other.

Each copy has its congestion window. The copy that is behind decides: those ahead have sent all that they may, and a
window that is not used does not grow (RFC 7661). A copy that had to wait for longer than its retransmission timeout
begins again with slow start (RFC 5681, section 4.1). There is no formula for it. So many mirrors are simulated side by
side, in steps of half the longest RTT, with losses drawn from a fixed seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log1p, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_MIRRORS: Final = 200
_STEPS_PER_ROUND: Final = 2
_SETTLING, _COUNTED = 4, 6
"""In units of the time in which a window regrows after a loss, about 1 / sqrt(p) RTTs."""
_STEPS_MOST: Final = 12_000
_SEED: Final = 7143
LEAST_TIMEOUT_NS: Final = 200e6
"""Linux' least retransmission timeout, which it adds to the RTT where that varies little."""
_RESTART_SEGMENTS: Final = 10
"""The initial window (RFC 6928), with which slow start begins again."""
_KEPT: Final = 3 / 4
"""Share of the window up to which slow start then goes (tcp_current_ssthresh of Linux)."""


@dataclass(frozen=True)
class Copies:
    """Connections that carry the same data, one to each target."""

    round_trips_ns: tuple[float, ...]
    loss: float
    growth: tuple[float, ...]
    """Growth of a window in an RTT, in segments."""
    decrease: float
    """Share of a window that remains after a loss."""
    window_segments: float
    """Receive window; inf: no limit."""
    ahead_segments: float
    """Segments that may be sent beyond those that all copies have or, within a system call, that this copy has."""
    call_segments: float
    """Size of a system call, which all copies have to finish before the next; inf where commands follow each other."""
    line_segments_per_ns: float
    """Rate of the line that they share."""


@lru_cache(maxsize=1024)
def segments_per_ns(copies: Copies) -> float:
    """Throughput of the mirror, in segments of one copy."""
    trips = np.array(copies.round_trips_ns)
    step_ns = float(trips.max()) / _STEPS_PER_ROUND
    regrowing = _STEPS_PER_ROUND / sqrt(copies.loss)
    steps = min(_STEPS_MOST, ceil((_SETTLING + _COUNTED) * regrowing))
    mirrors = _Mirrors(copies, trips, step_ns)
    for step in range(steps):
        if step == steps * _SETTLING // (_SETTLING + _COUNTED):
            begun = mirrors.done()
            begun_step = step
        mirrors.go_on()
    return float((mirrors.done() - begun).mean()) / ((steps - begun_step) * step_ns)


class _Mirrors:
    """Simulated mirrors side by side: a row each; their copies are columns."""

    def __init__(self, copies: Copies, trips: NDArray[Any], step_ns: float) -> None:
        self._copies = copies
        self._chance = np.random.default_rng(_SEED)
        shape = (_MIRRORS, len(trips))
        self._rounds = step_ns / trips
        self._growth = np.array(copies.growth) * self._rounds
        self._windows = np.full(shape, min(copies.window_segments, 1 / sqrt(copies.loss)))
        self._line = copies.line_segments_per_ns * step_ns
        # segments sent by now, and an RTT of each copy ago
        self._sent = np.zeros(shape)
        self._late = [np.zeros(shape) for _ in range(_STEPS_PER_ROUND + 1)]
        self._lags = np.ceil(trips / step_ns).astype(int).clip(1, _STEPS_PER_ROUND)
        self._repairing = np.zeros(shape)
        self._step_ns, self._timeout_ns = step_ns, trips + LEAST_TIMEOUT_NS
        self._idle_ns = np.zeros(shape)
        """Since a copy last sent anything."""
        self._thresholds = self._windows.copy()
        """Where slow start ends."""
        self._call = np.zeros(len(self._windows))
        """Where the current system call ends; 0 before the first."""

    def done(self) -> NDArray[Any]:
        """Segments that arrived on all copies."""
        least: NDArray[Any] = self._known().min(axis=1)
        return least

    def _known(self) -> NDArray[Any]:
        return np.stack([self._late[-lag][:, place] for place, lag in enumerate(self._lags)], axis=1)

    def go_on(self) -> None:
        """Advances by one step."""
        copies, known = self._copies, self._known()
        if copies.call_segments < inf:
            over = known.min(axis=1) >= self._call
            self._call[over] += copies.call_segments
            most = np.minimum(known + copies.ahead_segments, self._call[:, None])
        else:
            most = known.min(axis=1, keepdims=True) + copies.ahead_segments
        self._restart((most - self._sent) > 0)
        allowed = self._windows * self._rounds
        wanted = np.minimum(allowed, (most - self._sent).clip(0))
        total = wanted.sum(axis=1, keepdims=True)
        sent = wanted * np.minimum(1.0, self._line / np.maximum(total, 1e-9))
        lost = self._chance.random(sent.shape) < -np.expm1(log1p(-copies.loss) * sent)
        lost &= self._repairing <= 0
        grows = (sent >= allowed * (1 - 1e-9)) & (self._repairing <= 0)
        is_slow = self._windows < self._thresholds
        slow = np.minimum(self._windows * (1 + self._rounds), self._thresholds)
        grown = np.where(is_slow, slow, self._windows + self._growth)
        self._windows = np.where(lost, self._windows * copies.decrease, np.where(grows, grown, self._windows))
        np.clip(self._windows, 1.0, copies.window_segments, out=self._windows)
        self._thresholds = np.where(lost, self._windows, self._thresholds)
        self._idle_ns = np.where(sent > 0, 0.0, self._idle_ns + self._step_ns)
        self._repairing = np.where(lost, 1.0, self._repairing - self._rounds)
        self._sent = self._sent + sent
        self._late = [*self._late[1:], self._sent]

    def _restart(self, may_send: NDArray[np.bool_]) -> None:
        """Begins slow start again where a copy has waited for too long; each timeout of waiting halved its window."""
        is_over = may_send & (self._idle_ns > self._timeout_ns)
        kept = np.maximum(self._thresholds, _KEPT * self._windows)
        self._thresholds = np.where(is_over, np.minimum(kept, self._windows), self._thresholds)
        halved = self._windows * 0.5 ** (self._idle_ns // self._timeout_ns)
        restarted = np.minimum(self._windows, np.maximum(_RESTART_SEGMENTS, halved))
        self._windows = np.where(is_over, restarted, self._windows)
