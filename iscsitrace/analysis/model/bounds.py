"""What a connection carries at most: a window per round trip, and the window that losses leave.

Losses are independent of each other, so a window grows now for short and now for long, and is no even sawtooth. Its
average is 1.31 / sqrt(p) segments where nothing else bounds it (Ott, Kemperman and Mathis 1996), not 1.22 (Mathis and
others 1997), and what the receiver's window cuts off is not made up for: it is that of a Markov chain.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf, log1p, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.model.mirror_losses import Copies, segments_per_ns
from iscsitrace.analysis.model.setting import Setting
from iscsitrace.analysis.model.transfer import way_of

RENO: Final = (1.0, 0.5)
"""Segments by which a round trip without losses grows the window (RFC 5681; Linux counts segments, not ACKs, so delayed
ACKs do not halve it: RFC 3465), and what a loss leaves of it."""
CUBIC_AS_RENO: Final = (3 * 0.3 / 1.7, 0.7)
"""The same of CUBIC where it grows no slower than Reno would (RFC 9438, section 4.3)."""
CUBIC_CONSTANT: Final[float] = (0.4 * 3.7 / 1.2) ** 0.25
"""RFC 9438, section 5.1, with C = 0.4 and a decrease to 0.7."""
LEAST_SEGMENTS: Final = 10
"""Of a smaller average window the formulas know too little: losses end in timeouts (Padhye and others 1998)."""
_FAR: Final = 8
"""Windows of more than so many 1 / sqrt(p) are as good as never reached."""
_LOSSES: Final = 40
"""So many losses after the first, the windows are spread as they stay."""
_RARE: Final = 1e-8
"""Of rarer losses windows are larger by the root, and otherwise the same."""
_OFTEN: Final = 0.5
"""More losses leave no smaller window."""


def loss_window_segments(loss: float, round_trip_s: float, congestion_control: str, most: float = inf) -> float:
    """Average congestion window, in segments, of a sender whose window is ``most`` segments at most."""
    if loss <= 0:
        return most
    if congestion_control == "reno":
        return _average(loss, *RENO, most)
    return max(_average(loss, *CUBIC_AS_RENO, most), min(most, CUBIC_CONSTANT * float((round_trip_s / loss) ** 0.75)))


@lru_cache(maxsize=4096)
def _average(loss: float, increase: float, decrease: float, most: float) -> float:
    """Over round trips: one that sends w segments is without a loss with (1 - p)^w, and grows the window; else that of
    the repair, and the next, have what the loss leaves.
    """
    if loss < _RARE:
        scale = sqrt(_RARE / loss)
        return _average(_RARE, increase, decrease, most / scale) * scale
    loss = min(loss, _OFTEN)
    highest = min(most, max(4.0, _FAR / sqrt(loss)))
    windows = np.append(np.arange(1.0, highest, increase), highest)
    log_kept = log1p(-loss) * windows
    met = -np.expm1(log_kept)
    # of a round trip, that no window from the first on to this one met a loss
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
    """That of a setting, within its window."""
    most = setting.window_bytes / setting.segment_bytes if setting.window_bytes else inf
    segments = loss_window_segments(setting.loss, 2 * setting.delay_ns / 1e9, setting.congestion_control, most)
    return segments * setting.segment_bytes


def mirror_bytes_per_s(setting: Setting) -> float:
    """What losses let a mirror carry: bytes of the stream of one copy."""
    delays_ns = setting.target_delays_ns
    copies = Copies(
        round_trips_ns=tuple(way_of(replace(setting, delay_ns=each)).acknowledged_ns for each in delays_ns),
        loss=setting.loss,
        growth=tuple(_growth(replace(setting, delay_ns=each)) for each in delays_ns),
        decrease=_aimd(setting)[1],
        window_segments=setting.window_bytes / setting.segment_bytes if setting.window_bytes else inf,
        ahead_segments=setting.queue_depth * setting.block_bytes / setting.segment_bytes,
        call_segments=setting.call_bytes / setting.segment_bytes if setting.call_bytes else inf,
        line_segments_per_ns=setting.c_bytes_per_s / setting.segment_bytes / 1e9 if setting.c_bytes_per_s else inf,
    )
    return setting.connections * segments_per_ns(copies) * setting.segment_bytes * 1e9


def _aimd(setting: Setting) -> tuple[float, float]:
    return RENO if setting.congestion_control == "reno" else CUBIC_AS_RENO


def _growth(setting: Setting) -> float:
    """Segments a round trip that give the average window, which goes as their root."""
    growth, decrease = _aimd(setting)
    average = loss_window_bytes(replace(setting, window_bytes=None)) / setting.segment_bytes
    return growth * (average / _average(setting.loss, growth, decrease, inf)) ** 2


def window_bytes_per_s(setting: Setting, window_bytes: float = inf) -> float:
    """What a connection carries of its stream with a window, or with its own if that is less, per round trip."""
    way = way_of(setting, window_bytes)
    return way.window_bytes / way.acknowledged_ns * 1e9 if way.window_bytes < inf and way.acknowledged_ns else inf
