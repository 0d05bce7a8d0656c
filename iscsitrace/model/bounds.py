"""Bounds on the throughput of a connection: one window per RTT, and the congestion window under losses; of a mirror
under losses, too.

Losses are independent, so a window grows for a short time or a long one: it is no regular sawtooth. Without another
bound its average is 1.31 / sqrt(p) segments (Ott, Kemperman and Mathis 1996), not 1.22 (Mathis and others 1997). A
receive window cuts off the large values and nothing compensates for them: the average is that of a Markov chain.

The connections of a mirror wait for each other. The copy that is behind decides: those ahead have sent all that they
may, and a window that is not used does not grow (RFC 7661). A copy that had to wait for longer than its retransmission
timeout begins again with slow start (RFC 5681, section 4.1). There is no formula for it. So many mirrors are simulated
side by side, in steps of half the longest RTT, with losses drawn from a fixed seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, log1p, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.model.setting import Setting
from iscsitrace.model.transfer import usable_bytes, way_of

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


RENO: Final = (1.0, 0.5)
"""Growth of the window in an RTT without loss, in segments (RFC 5681; Linux counts segments, not ACKs, so delayed ACKs
do not halve it: RFC 3465), and the share of the window that remains after a loss."""
CUBIC_AS_RENO: Final = (3 * 0.3 / 1.7, 0.7)
"""The same for CUBIC in its Reno-friendly region (RFC 9438, section 4.3)."""
_CUBIC_BEHIND: Final = 0.5 + CUBIC_AS_RENO[0]
"""Segments by which the window is below the estimate of that region (tcp_cubic.c of Linux): it follows the estimate an
RTT later, by whole segments."""
CUBIC_CONSTANT: Final[float] = (0.4 * 3.7 / 1.2) ** 0.25
"""RFC 9438, section 5.1, with C = 0.4 and a decrease to 0.7."""
LEAST_SEGMENTS: Final = 10
"""Smallest average window for which the formulas hold: below it, losses end in timeouts (Padhye and others 1998)."""
LEAST_DELAY_NS: Final = 2e6
"""Shortest one-way delay for which they hold: below it the timer that finds the loss of a last segment, which takes
milliseconds whatever the RTT, costs more than the repair."""
_FAR: Final = 8
"""Windows larger than this times 1 / sqrt(p) are practically never reached."""
_LOSSES: Final = 40
"""Losses after which the distribution of windows is stationary."""
_RARE: Final = 1e-8
"""Windows under rarer losses are those under this loss rate, scaled by the square root."""
_OFTEN: Final = 0.5
"""Largest loss rate that the chain follows."""


def loss_window_segments(loss: float, round_trip_s: float, congestion_control: str, most: float = inf) -> float:
    """Average congestion window in segments; ``most`` is the largest possible one."""
    if loss <= 0:
        return most
    if congestion_control == "reno":
        return _average(loss, *RENO, most)
    like_reno = max(min(most, 1.0), _average(loss, *CUBIC_AS_RENO, most) - _CUBIC_BEHIND)
    return max(like_reno, min(most, CUBIC_CONSTANT * float((round_trip_s / loss) ** 0.75)))


@lru_cache(maxsize=4096)
def _average(loss: float, increase: float, decrease: float, most: float) -> float:
    """The average over RTTs. An RTT that sends w segments has no loss with (1 - p)^w, and grows the window; after a
    loss, the RTT of the recovery and the next one have the reduced window.
    """
    if loss < _RARE:
        scale = sqrt(_RARE / loss)
        return _average(_RARE, increase, decrease, most / scale) * scale
    loss = min(loss, _OFTEN)
    highest = min(most, max(4.0, _FAR / sqrt(loss)))
    windows = np.append(np.arange(1.0, highest, increase), highest)
    log_kept = log1p(-loss) * windows
    met = -np.expm1(log_kept)
    # log of the probability that no window before this one met a loss
    log_reached = np.concatenate(([0.0], np.cumsum(log_kept)[:-1]))
    left = np.searchsorted(windows, windows * decrease, side="right").clip(1) - 1
    begun: NDArray[Any] = np.zeros(len(windows))
    begun[len(windows) // 2] = 1.0
    for _ in range(_LOSSES):
        rounds = np.exp(log_reached) * np.cumsum(begun * np.exp(-log_reached))
        rounds[-1] /= met[-1]
        lossy = rounds * met
        begun = np.bincount(left, lossy, len(windows)) / lossy.sum()
    return float((rounds @ windows + lossy @ windows[left]) / (rounds.sum() + lossy.sum()))


def loss_window_bytes(setting: Setting) -> float:
    """Average congestion window of a setting in bytes, bounded by its window."""
    most = usable_bytes(setting.window_bytes or inf, setting.segment_bytes) / setting.segment_bytes
    segments = loss_window_segments(setting.loss, 2 * setting.delay_ns / 1e9, setting.congestion_control, most)
    return segments * setting.segment_bytes


def mirror_bytes_per_s(setting: Setting) -> float:
    """Throughput of a mirror under losses, in bytes per second of one copy's stream."""
    delays_ns = setting.target_delays_ns
    copies = Copies(
        round_trips_ns=tuple(way_of(replace(setting, delay_ns=each)).acknowledged_ns for each in delays_ns),
        loss=setting.loss,
        growth=tuple(growth_and_decrease(replace(setting, delay_ns=each))[0] for each in delays_ns),
        decrease=growth_and_decrease(setting)[1],
        window_segments=setting.window_bytes / setting.segment_bytes if setting.window_bytes else inf,
        ahead_segments=setting.queue_depth * setting.block_bytes / setting.segment_bytes,
        call_segments=setting.call_bytes / setting.segment_bytes if setting.call_bytes else inf,
        line_segments_per_ns=setting.c_bytes_per_s / setting.segment_bytes / 1e9 if setting.c_bytes_per_s else inf,
    )
    return setting.connections * segments_per_ns(copies) * setting.segment_bytes * 1e9


def growth_and_decrease(setting: Setting) -> tuple[float, float]:
    """Growth of a window in an RTT without loss, in segments, that results in the average window, which is proportional
    to its square root; and the share of a window that remains after a loss.
    """
    growth, decrease = RENO if setting.congestion_control == "reno" else CUBIC_AS_RENO
    if not setting.loss:
        return growth, decrease
    average = loss_window_bytes(replace(setting, window_bytes=None)) / setting.segment_bytes
    return growth * (average / _average(setting.loss, growth, decrease, inf)) ** 2, decrease


def window_bytes_per_s(setting: Setting, average_bytes: float = inf) -> float:
    """Throughput of a connection's stream with this average window per RTT, or with the setting's if it is smaller."""
    way = way_of(setting, average_bytes)
    return way.window_bytes / way.acknowledged_ns * 1e9 if way.window_bytes < inf and way.acknowledged_ns else inf
