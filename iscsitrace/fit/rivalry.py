"""Which model of losses describes captures best, by cross-validation.

Each part of the time of a capture is predicted with the loss rate of the other parts; RTT, window, line and service
time are those of the whole. So no model sees the losses that it has to explain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.errors import InputInvalid
from iscsitrace.fit import robust
from iscsitrace.fit.points import Losses, Point
from iscsitrace.model.rivals import RIVALS, Rival

Array = NDArray[Any]

FOLDS_MIN: Final = 3
"""Parts of the time from which on models can be told apart."""


@dataclass(frozen=True)
class Candidate:
    """A model, and how far it is off."""

    rival: Rival
    predicted_bytes_per_s: tuple[float | None, ...]
    """For each point as a whole, with its own loss rate; None where the model has no throughput."""
    errors: tuple[float, ...]
    """Of each part of the time: predicted / measured throughput, less 1; infinite without a throughput."""

    @property
    def error(self) -> float:
        """The median of the sizes of the errors."""
        return float(np.median(np.abs(self.errors)))


@dataclass(frozen=True)
class Rivalry:
    """The models beside each other."""

    points: tuple[Point, ...]
    """Those with losses."""
    candidates: tuple[Candidate, ...]
    """In the order of RIVALS."""

    @property
    def best(self) -> tuple[Candidate, ...]:
        """The candidates that may be the best one, the one with the least error first: all others are worse by more
        than the parts of the time scatter.
        """
        order = sorted(self.candidates, key=lambda each: each.error)
        first = order[0]
        return tuple(each for each in order if each is first or not _is_worse(each, first))

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as in ``model fit --json``."""
        return {
            "points": [
                {
                    "point": point.name,
                    "loss": point.losses.setting.loss,
                    "loss_count": point.losses.loss_count,
                    "segment_count": point.losses.segment_count,
                    "throughput_bytes_per_s": point.losses.throughput.value,
                    "throughput_low_bytes_per_s": point.losses.throughput.low,
                    "throughput_high_bytes_per_s": point.losses.throughput.high,
                    "predicted_bytes_per_s": {
                        each.rival.name: each.predicted_bytes_per_s[place] for each in self.candidates
                    },
                }
                for place, point in enumerate(self.points)
                if point.losses
            ],
            "models": [
                {
                    "name": each.rival.name,
                    "source": each.rival.source,
                    "median_error": each.error if np.isfinite(each.error) else None,
                    "part_count": len(each.errors),
                }
                for each in self.candidates
            ],
            "best": [each.rival.name for each in self.best],
        }


def compare(points: Sequence[Point]) -> Rivalry | None:
    """The models on all points with losses; None where there are none."""
    lossy = [point for point in points if point.losses and point.losses.folds]
    if not lossy:
        return None
    return Rivalry(
        tuple(lossy),
        tuple(
            Candidate(
                rival,
                tuple(_predict(rival, point.losses, point.losses.setting.loss) for point in lossy if point.losses),
                tuple(error for point in lossy if point.losses for error in _errors(rival, point.losses)),
            )
            for rival in RIVALS
        ),
    )


def _errors(rival: Rival, losses: Losses) -> list[float]:
    found = []
    for loss, measured in losses.folds:
        predicted = _predict(rival, losses, loss)
        found.append(float("inf") if predicted is None else predicted / measured - 1)
    return found


def _predict(rival: Rival, losses: Losses, loss: float) -> float | None:
    try:
        return rival.bytes_per_s(replace(losses.setting, loss=loss))
    except InputInvalid:
        return None


def _is_worse(one: Candidate, best: Candidate) -> bool:
    """Whether its errors are larger by more than chance, at 95 % confidence: pairs of the same part."""
    more = np.abs(one.errors) - np.abs(best.errors)
    if len(more) < FOLDS_MIN:
        return False
    if not np.isfinite(more).all():
        return True
    error = float(more.std(ddof=1) / np.sqrt(len(more)))
    return float(more.mean()) > robust.student_975(len(more) - 1) * error
