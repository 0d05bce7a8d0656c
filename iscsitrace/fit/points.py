"""The points that a fit is made from, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from iscsitrace.measure.line import Line
from iscsitrace.model.setting import Leg, Prediction, Setting
from iscsitrace.model.uncertainty import Estimate, FittedPlace

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

BOUNDS_OF_QUEUES: Final = ("cycle", "line", "window", "receiver")
"""What limits commands that are in flight together, by the time breakdown: their cycle time, the line, a window per
RTT, or a receiver that keeps its window closed for longer."""


@dataclass(frozen=True)
class Seen:
    """What the packets of one point show of the parameters, without other points."""

    bound: str
    """One of BOUNDS_OF_QUEUES; at queue depth 1 ``cycle``."""
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
