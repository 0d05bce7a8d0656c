"""The points that a fit is made from, what the model predicts for each of them, and the result of the fit.

Connections with commands of their own run side by side, up to what the line carries. Where fewer commands are in flight
than there are connections, these take turns: all carry the same, and a far one delays all. A result is also read back
from the JSON of ``model fit --json``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import hypot, isfinite, sqrt
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.measure.line import Line
from iscsitrace.model.cycle import legs
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Leg, Prediction, Setting, Solicitation
from iscsitrace.model.uncertainty import LOSS_ERROR, Estimate, FittedPlace

REASONS: Final = {
    "slow_start": "the TCP window was still growing at the start of a burst of I/O",
    "lossy": "packets were lost, or the window was still small after a loss",
    "incomplete": "part of it is missing from the capture, or it was aborted",
    "pause": "a pause of the program followed",
    "no_period": "no command followed",
    "other_block": "another I/O size, or a lower queue depth: metadata, remainders, ends of bursts",
    "apart": "in flight with others, but neither issued at once nor in a queue that was kept full",
}
"""Why a command is left out."""

"""What limits commands that are in flight together, by the time breakdown: their cycle time, the line, a window per
RTT, or a receiver that keeps its window closed for longer."""


@dataclass(frozen=True)
class Seen:
    """What the packets of one point show of the parameters, without other points."""

    bound: str
    """``cycle``, ``line``, ``window`` or ``receiver``; at queue depth 1 ``cycle``."""
    k: Estimate | None
    """One-way delays of a cycle; None at queue depth 2 or more, where the packets do not show whose delay it is."""
    service_ns: Estimate | None
    """Service time: what neither path, line nor windows explain; None likewise."""
    transfer_ns: Estimate
    """Line time of one I/O; where the receiver is the limit, the receiver's time for it."""
    stall_ns: float
    """Waits for windows in one cycle; 0 at queue depth 2 or more, where ``bound`` shows them."""
    legs: tuple[Leg, ...]
    """What k is made of: the path's part of each interval at the tap."""
    line: Line | None = None
    """The line that the data passed, where the packets show its rate."""
    data_pdu_bytes: int | None = None
    """Payload of a data PDU: the rate of a line includes their headers."""
    ack_delay: Estimate | None = None
    """How long the ACK is delayed that the status of a read waits for; None where none is delayed."""
    is_line_shared: bool = False
    """Whether another session used the line meanwhile, so that this one got a part of its rate."""

    @property
    def own_line(self) -> Line | None:
        """The line, if all of its rate was there for this session, and the receiver could take it."""
        return None if self.is_line_shared or self.bound == "receiver" else self.line


@dataclass(frozen=True)
class OfConnection:
    """The part that one connection has in the steady cycles of its session."""

    connection: int
    throughput: Estimate
    """In bytes/s."""
    idle_fraction: float | None
    """Share of the time in which no data of this connection is on the line; None where no packet tells."""
    delay_ns: float | None = None
    """Half of its own RTT; None where it is unknown."""


@dataclass(frozen=True)
class Losses:
    """All commands of a point's kind, also those that waited for losses."""

    setting: Setting
    """With the measured loss rate, line rate and service time."""
    service_ns: Estimate | None
    """What neither path, line, windows nor losses explain; None for commands in flight together."""
    loss_count: int
    """Losses of data of these commands that TCP recovered from."""
    segment_count: int
    """Full segments of their data."""
    command_count: int
    throughput: Estimate
    """In bytes/s."""
    folds: tuple[tuple[float, float], ...]
    """For each part of the time: the loss rate of all other parts, and the throughput of this one in bytes/s."""


@dataclass(frozen=True)
class Point:
    """The steady cycles of one session in one capture with the same operation, I/O size and queue depth."""

    name: str
    """Such as ``wan/initiator.pcapng, session 0, read 128 KiB, QD 1``."""
    session: int
    """Number of the session; of the copies of a mirror, that of the farthest target."""
    setting: Setting
    """What the packets show: I/O size, delay, queue depth, window, negotiated parameters, line rate."""
    period_ns: float
    """Robust mean: from a command to the next or, in a queue, to the one that took its place."""
    period_spread_ns: float
    """Standard error of the period."""
    throughput_bytes_per_s: float
    """Throughput of the steady cycles."""
    cycle_count: int
    """Commands in the steady cycles."""
    left_out: dict[str, int]
    """Commands left out, by reason: see REASONS."""
    parts_ns: dict[str, float]
    """Time breakdown of one period: robust means over the cycles that count."""
    delay_ns: Estimate
    """Half of the RTT."""
    seen: Seen
    is_status_apart: bool = False
    """Whether the status of most of its reads comes in a SCSI Response: TCP may hold such a one until an ACK."""
    throughput_low_bytes_per_s: float | None = None
    throughput_high_bytes_per_s: float | None = None
    """Ends of the 95 % confidence interval of the throughput."""
    idle_fraction: float | None = None
    """Share of the time of the steady cycles in which no data is on the line."""
    connections: tuple[OfConnection, ...] = ()
    """Each connection that carried these commands."""
    losses: Losses | None = None
    """Of a sender whose data was lost often enough to tell its loss rate."""

    @property
    def outstanding(self) -> int:
        """Commands in flight on all connections together."""
        return self.setting.queue_depth * self.setting.connections

    @property
    def window_wait_ns(self) -> float:
        """Waits for windows in one cycle where no window is known, so that they count as service time."""
        return self.seen.stall_ns if self.setting.window_bytes is None else 0.0


@dataclass(frozen=True)
class Fit:
    """The result of ``model fit``."""

    k: Estimate
    d_ns: Estimate
    """One-way delay; of captures at several delays the median. ``points`` has all of them."""
    s_ns: Estimate
    c_bytes_per_s: Estimate | None
    """None where the data came in single packets, which show no line rate: then the model sends data instantly."""
    ack_delay_ns: Estimate | None
    """How long ACKs are delayed for which statuses wait, at the points where they are; None where none is."""
    stall_share: Estimate
    """Share of the model's waits for windows that lengthen a cycle: in the rest the hosts do work that they have to do
    anyway. 1 where the points do not show it."""
    correlations: dict[str, float]
    """Correlation of two parameters of a regression, by both names with a space between."""
    scatter: float
    """How much the period of one more run differs from the model's at 95 % confidence, as a share."""
    k_of_legs: float
    """One-way delays of the legs of ``setting``: what k should be."""
    legs: tuple[Leg, ...]
    """What k is made of, by the packets."""
    setting: Setting
    """The setting of most cycles, with the fitted s and C: the start of a what-if."""
    points: tuple[Point, ...]
    models: tuple[Prediction, ...]
    """The model's prediction for each point."""
    residuals: tuple[float, ...]
    """For each point: period measured / period of the model, less 1."""
    cycles_used: int
    cycles_left_out: dict[str, int]
    undetermined: tuple[str, ...]
    """What the captures could not separate, in words, and what was assumed instead."""

    @property
    def models_ns(self) -> tuple[float, ...]:
        """The model's period of each point."""
        return tuple(model.period_ns for model in self.models)

    @property
    def places(self) -> tuple[FittedPlace, ...]:
        """Where the model was fitted."""
        return tuple(
            FittedPlace(
                block_bytes=point.setting.block_bytes,
                delay_ns=point.delay_ns.value,
                queue_depth=point.outstanding,
                is_status_held=point.setting.is_status_held,
                is_status_apart=point.is_status_apart,
                period_ns=point.period_ns,
                bound=point.seen.bound,
                window_wait_ns=point.window_wait_ns,
                throughput_bytes_per_s=point.throughput_bytes_per_s,
                throughput_low_bytes_per_s=point.throughput_low_bytes_per_s,
                throughput_high_bytes_per_s=point.throughput_high_bytes_per_s,
                model_ns=model_ns,
                ack_delay_ns=point.setting.ack_delay_ns,
                data_pdu_bytes=point.seen.data_pdu_bytes,
            )
            for point, model_ns in zip(self.points, self.models_ns, strict=True)
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON: names as in ``model fit --json``."""
        return {
            "k": self.k.as_dict(),
            "d_ns": self.d_ns.as_dict(),
            "s_ns": self.s_ns.as_dict(),
            "c_bytes_per_s": self.c_bytes_per_s and self.c_bytes_per_s.as_dict(),
            "ack_delay_ns": self.ack_delay_ns and self.ack_delay_ns.as_dict(),
            "stall_share": self.stall_share.as_dict(),
            "correlations": self.correlations,
            "scatter": self.scatter,
            "k_of_legs": self.k_of_legs,
            "legs": [{"name": leg.name, "delays": leg.delays, "meaning": leg.meaning} for leg in self.legs],
            "setting": asdict(self.setting),
            "residuals": [
                {
                    "point": point.name,
                    "operation": point.setting.operation,
                    "block_bytes": point.setting.block_bytes,
                    "queue_depth": point.outstanding,
                    "delay_ns": point.delay_ns.as_dict(),
                    "is_status_held": point.setting.is_status_held,
                    "is_status_apart": point.is_status_apart,
                    "bound": point.seen.bound,
                    "window_wait_ns": point.window_wait_ns,
                    "ack_delay_ns": point.setting.ack_delay_ns,
                    "data_pdu_bytes": point.seen.data_pdu_bytes,
                    "cycle_count": point.cycle_count,
                    "left_out": point.left_out,
                    "throughput_bytes_per_s": point.throughput_bytes_per_s,
                    "throughput_low_bytes_per_s": point.throughput_low_bytes_per_s,
                    "throughput_high_bytes_per_s": point.throughput_high_bytes_per_s,
                    "period_ns": point.period_ns,
                    "model_ns": model_ns,
                    "residual": residual,
                    "parts_ns": point.parts_ns,
                }
                for point, model_ns, residual in zip(self.points, self.models_ns, self.residuals, strict=True)
            ],
            "cycles_used": self.cycles_used,
            "cycles_left_out": self.cycles_left_out,
            "undetermined": list(self.undetermined),
        }


def of_operation(points: Sequence[Point], operation: str | None = None) -> list[Point]:
    """The points of one operation; by default of the one that moved more bytes."""
    moved: Counter[str] = Counter()
    for point in points:
        moved[point.setting.operation] += point.cycle_count * point.setting.block_bytes
    wanted = operation or max(moved, key=lambda each: moved[each], default=None)
    return [point for point in points if point.setting.operation == wanted]


_WHOLE: Final = Estimate.exact(1.0, "assumed")


@dataclass(frozen=True)
class FittedModel:
    """The part of a fit that predictions need."""

    k: Estimate
    d_ns: Estimate
    s_ns: Estimate
    c_bytes_per_s: Estimate | None
    k_of_legs: float
    """One-way delays of the legs of ``setting``."""
    setting: Setting
    stall_share: Estimate = _WHOLE
    correlations: Mapping[str, float] = field(default_factory=dict)
    scatter: float = 0.0
    """How much the period of one more run differs from the model's at 95 % confidence, as a share."""
    places: tuple[FittedPlace, ...] = ()


def fitted_from_document(document: object) -> FittedModel:
    """Reads a fit; InputInvalid, with the reason, for a document that is none."""
    try:
        if not isinstance(document, Mapping):
            raise TypeError("not a JSON object")
        k, d_ns, s_ns = (Estimate(**document[name]) for name in ("k", "d_ns", "s_ns"))
        c = Estimate(**document["c_bytes_per_s"]) if document["c_bytes_per_s"] else None
        setting = _setting(document["setting"])
        rows = document["residuals"]
        k_of_legs = document.get("k_of_legs") or sum(leg.delays for leg in legs(setting))
        # fits of an earlier version have residuals and no scatter
        off = sqrt(sum(float(row["residual"]) ** 2 for row in rows) / max(1, len(rows)))
        scatter = float(document.get("scatter", 2 * off))
        correlations = {str(names): float(each) for names, each in document.get("correlations", {}).items()}
        share = Estimate(**document["stall_share"]) if "stall_share" in document else _WHOLE
        places = tuple(_place(row) for row in rows if "is_status_apart" in row)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputInvalid(f"not the output of model fit --json: {problem}") from error
    return FittedModel(k, d_ns, s_ns, c, float(k_of_legs), setting, share, correlations, scatter, places)


def _place(row: Mapping[str, Any]) -> FittedPlace:
    known = {field.name for field in fields(FittedPlace)} - {"delay_ns"}
    return FittedPlace(**{name: row[name] for name in known if name in row}, delay_ns=row["delay_ns"]["value"])


def _setting(document: Mapping[str, Any]) -> Setting:
    known = {field.name for field in fields(Setting)} - {"solicitation"}
    others = {name: value for name, value in document.items() if name in known}
    return Setting(
        **others | {"target_delays_ns": tuple(document.get("target_delays_ns", ()))},
        solicitation=Solicitation(**document.get("solicitation", {})),
    )


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
