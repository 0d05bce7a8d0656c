"""What a connection carries at most: a window per round trip, and the window that losses leave (Mathis and others
1997 for Reno; RFC 9438, section 5.1, for CUBIC).
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Final

from iscsitrace.analysis.model.setting import Setting
from iscsitrace.analysis.model.transfer import way_of

MATHIS_CONSTANT: Final = sqrt(3 / 2)
"""Of a window that grows by a segment in a round trip, and is halved by a loss, whoever acknowledges what: Linux counts
segments, not ACKs (RFC 3465), so delayed ACKs do not make it the 0.87 of a window that counts ACKs."""
CUBIC_CONSTANT: Final[float] = (0.4 * 3.7 / 1.2) ** 0.25
"""RFC 9438, section 5.1, with C = 0.4 and a decrease to 0.7."""
LEAST_SEGMENTS: Final = 10
"""Of a smaller average window the formulas know too little: losses end in timeouts (Padhye and others 1998)."""


def loss_window_segments(loss: float, round_trip_s: float, congestion_control: str) -> float:
    """Average congestion window, in segments, of a sender that nothing else limits."""
    if loss <= 0:
        return inf
    reno = MATHIS_CONSTANT / sqrt(loss)
    if congestion_control == "reno":
        return reno
    # RFC 9438, section 4.3: where Reno would have more, CUBIC has as much
    return max(reno, CUBIC_CONSTANT * float((round_trip_s / loss) ** 0.75))


def loss_window_bytes(setting: Setting) -> float:
    """That of a setting."""
    segments = loss_window_segments(setting.loss, 2 * setting.delay_ns / 1e9, setting.congestion_control)
    return segments * setting.segment_bytes


def window_bytes_per_s(setting: Setting, window_bytes: float = inf) -> float:
    """What a connection carries of its stream with a window, or with its own if that is less, per round trip."""
    way = way_of(setting, window_bytes)
    return way.window_bytes / way.acknowledged_ns * 1e9 if way.window_bytes < inf and way.acknowledged_ns else inf
