"""Bounds on the throughput of a connection: one window per RTT, and the congestion window under losses.

Losses are independent, so a window grows for a short time or a long one: it is no regular sawtooth. Without another
bound its average is 1.31 / sqrt(p) segments (Ott, Kemperman and Mathis 1996), not 1.22 (Mathis and others 1997). A
receive window cuts off the large values and nothing compensates for them: the average is that of a Markov chain.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf, log1p, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.model.mirror_losses import Copies, segments_per_ns
from iscsitrace.model.setting import Setting
from iscsitrace.model.transfer import usable_bytes, way_of

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
