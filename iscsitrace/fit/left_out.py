"""Leave-one-out: each setting of a fit as the others predict it.

A residual shows how well a model follows the points that it was fitted to. Here a setting is left out with all of its
points: repeats, and a second capture of the same run, would tell the answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from iscsitrace.errors import InputInvalid
from iscsitrace.fit.points import Fit, Point
from iscsitrace.fit.regression import fit
from iscsitrace.model.prediction import changed
from iscsitrace.model.uncertainty import Interval, predict_with

KNOWN: Final = (
    *("block_bytes", "delay_ns", "queue_depth", "connections", "window_bytes", "start_window_bytes"),
    *("segment_bytes", "solicitation", "target_delays_ns", "loss", "congestion_control"),
)
"""Fields of a setting that are known before it runs; the rest are what the fit has to find."""


@dataclass(frozen=True)
class LeftOut:
    """What the other settings predict for a point."""

    expected: Interval
    error: float
    """Measured throughput / the predicted one, less 1; `apart` has its size."""
    is_held: bool
    """Whether the measured throughput is within the 95 % confidence interval of one more run."""


def apart(error: float) -> float:
    """The size of an error, as a share: the same for half and for twice the throughput."""
    return error if error >= 0 else 1 / (1 + error) - 1


def left_out(
    points: Sequence[Point], keys: Sequence[Hashable], sockets: Sequence[float] | None = None
) -> tuple[LeftOut | None, ...]:
    """Each point by a fit to the points of other keys; None where no others can be fitted.

    ``keys`` and ``sockets`` (C by a plain transfer) have one value for each point; points of one setting share a key.
    """
    fits: dict[Hashable, Fit | None] = {}
    for key in dict.fromkeys(keys):
        others = [place for place, each in enumerate(keys) if each != key]
        try:
            rates = [sockets[place] for place in others] if sockets else None
            fits[key] = fit([points[place] for place in others], rates)
        except InputInvalid:
            fits[key] = None
    return tuple(
        None if (found := fits[key]) is None else _expected(found, point, sockets[place] if sockets else None)
        for place, (point, key) in enumerate(zip(points, keys, strict=True))
    )


def _expected(found: Fit, point: Point, socket_bytes_per_s: float | None) -> LeftOut | None:
    values = {name: getattr(point.setting, name) for name in KNOWN}
    if socket_bytes_per_s:
        # the throughput of a plain transfer is measured in the setting that is left out
        values |= {"c_bytes_per_s": socket_bytes_per_s, "window_bytes": None}
    setting = changed(found.setting, values)
    try:
        expected = predict_with(setting, found, values)
    except InputInvalid:
        return None
    measured = point.throughput_bytes_per_s
    return LeftOut(
        expected,
        measured / expected.prediction.throughput_bytes_per_s - 1,
        expected.low_bytes_per_s <= measured <= expected.high_bytes_per_s,
    )
