"""What the model predicts for a point: by the one-way delays that its cycles pay, and for each of its connections.

Connections with commands of their own run side by side, up to what the line carries. Where fewer commands are in flight
than there are connections, these take turns: all carry the same, and a far one delays all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot, isfinite
from typing import Final

from iscsitrace.fit.points import Fit, Point
from iscsitrace.model.cycle import legs
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Prediction
from iscsitrace.model.uncertainty import LOSS_ERROR

OTHER_LEGS: Final = 0.25
"""Share by which the delays in the packets may differ from those of the setting's legs; beyond it the packets count."""
MODEL_ERROR: Final = 0.005
"""Share of a period by which a point differs from the model however many cycles it has: headers, and the path."""
HOST_ERROR: Final = 0.1
"""Share of the hosts' time by which two runs of the same hosts differ."""


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

    @property
    def host_ns(self) -> float:
        """Time of a cycle that neither path nor line nor windows explain; 0 where line or window are the limit."""
        point, seen = self.point, self.point.seen
        if seen.service_ns:
            return seen.service_ns.value
        if seen.bound == "receiver":
            return point.period_ns
        if seen.bound != "cycle":
            return 0.0
        return max(0.0, point.period_ns - self.delays * point.delay_ns.value - seen.transfer_ns.value)

    @property
    def factor(self) -> float:
        """Delays in the packets / these."""
        return self.point.seen.k.value / self.delays if self.point.seen.k else 1.0

    def error_ns(self, factor: float) -> float:
        """Standard error of the period of one run: by its cycles, and by how much runs and the model differ.

        ``factor`` is that of most points: another one is that of statuses which are held at times.
        """
        point = self.point
        of_cycles = point.period_spread_ns if isfinite(point.period_spread_ns) else 0.0
        other_ns = (self.factor - factor) * self.delays * point.delay_ns.value if point.seen.k else 0.0
        of_losses = LOSS_ERROR * point.period_ns if point.setting.loss else 0.0
        return hypot(of_cycles, MODEL_ERROR * point.period_ns, HOST_ERROR * self.host_ns, other_ns, of_losses)

    def predict(
        self, factor: float, service_ns: float, c_bytes_per_s: float | None, stall_share: float = 1.0
    ) -> Prediction:
        """The prediction for its setting, if a cycle pays ``factor`` times these delays."""
        setting = replace(self.point.setting, service_ns=service_ns, c_bytes_per_s=c_bytes_per_s)
        return predict(setting, k_factor=factor * self.delays / self.of_setting, stall_share=stall_share)


def throughput_of_each(fit: Fit, place: int) -> tuple[float | None, ...]:
    """Throughput by the model of each connection of a point, in their order, in bytes/s; None where a delay is unknown,
    and of a mirror.
    """
    point, model = fit.points[place], fit.models[place]
    count = len(point.connections)
    if point.setting.target_delays_ns or any(each.delay_ns is None for each in point.connections):
        return (None,) * count
    if count <= 1:
        return (model.throughput_bytes_per_s,) * count
    delays_ns = [each.delay_ns or 0.0 for each in point.connections]
    own = [_alone(point, model, delay_ns, fit.stall_share.value) for delay_ns in delays_ns]
    if point.outstanding < count:
        turn_ns = sum(each.period_ns for each in own)
        return (point.outstanding * model.setting.block_bytes / turn_ns * 1e9,) * count
    rates = [each.throughput_bytes_per_s for each in own]
    line = model.setting.block_bytes / model.transfer_ns * 1e9 if model.transfer_ns else sum(rates)
    part = min(1.0, line / sum(rates))
    return tuple(rate * part for rate in rates)


def _alone(point: Point, model: Prediction, delay_ns: float, stall_share: float) -> Prediction:
    """One connection with its part of the commands in flight."""
    depth = max(1, round(point.outstanding / len(point.connections)))
    setting = replace(model.setting, connections=1, queue_depth=depth, delay_ns=delay_ns)
    k_factor = model.k / sum(leg.delays for leg in legs(model.setting))
    return predict(setting, k_factor=k_factor, stall_share=stall_share)
