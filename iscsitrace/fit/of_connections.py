"""What the model says of each connection of a point: its own delay decides how much of the throughput it has.

Connections with commands of their own run side by side, up to what the line carries. Where fewer commands are in flight
than there are connections, these take turns: all carry the same, and a far one delays all.
"""

from __future__ import annotations

from dataclasses import replace

from iscsitrace.fit.points import Fit, Point
from iscsitrace.model.legs import legs
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Prediction


def modelled(fit: Fit, place: int) -> tuple[float | None, ...]:
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
