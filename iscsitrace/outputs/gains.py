"""The gains of one advice by the model, as the terminal and the report print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iscsitrace.analysis.session.gain import Gain

_OPEN: Final = 1.1
"""Ratio of a gain's high to its low from which both are shown."""


def words(gains: Sequence[Gain]) -> str:
    """Such as ``model: up to 8.0x with queue depth 8``; empty if the model predicts none."""
    if not gains:
        return ""
    conditions = dict.fromkeys(f", {gain.condition}" for gain in gains if gain.condition)
    return f"model: {', '.join(f'{_times(gain)} with {gain.change}' for gain in gains)}{''.join(conditions)}"


def _times(gain: Gain) -> str:
    """``up to 5.1x``; ``about 5.1x (2.2x to 7.8x)`` where the packets leave much open."""
    times = f"{gain.throughput_factor:.1f}x"
    is_open = gain.high > _OPEN * gain.low
    return f"about {times} ({gain.low:.1f}x to {gain.high:.1f}x)" if is_open else f"up to {times}"
