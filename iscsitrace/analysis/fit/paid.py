"""A point with the number of one-way delays that its cycles pay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from iscsitrace.analysis.fit.points import Point
from iscsitrace.analysis.model.legs import legs
from iscsitrace.analysis.model.prediction import predict
from iscsitrace.analysis.model.setting import Prediction

OTHER_LEGS: Final = 0.25
"""Share by which the delays in the packets may differ from those of the setting's legs; beyond it the packets count."""


@dataclass(frozen=True)
class Paid:
    """A point, and how many one-way delays its cycles pay."""

    point: Point
    of_setting: float
    """By the legs of its setting."""
    delays: float
    """The same, or by the packets where these differ much."""

    @classmethod
    def of(cls, point: Point) -> Paid:
        """The delays of a point."""
        of_setting = sum(leg.delays for leg in legs(point.setting))
        seen = point.seen.k.value if point.seen.k else of_setting
        if abs(seen / of_setting - 1) <= OTHER_LEGS:
            return cls(point, of_setting, of_setting)
        # whole RTTs, so an even number
        return cls(point, of_setting, 2.0 * max(1, round(seen / 2)))

    def predict(self, factor: float, service_ns: float, c_bytes_per_s: float | None) -> Prediction:
        """The prediction for its setting, if a cycle pays ``factor`` times these delays."""
        setting = replace(self.point.setting, service_ns=service_ns, c_bytes_per_s=c_bytes_per_s)
        return predict(setting, k_factor=factor * self.delays / self.of_setting)
