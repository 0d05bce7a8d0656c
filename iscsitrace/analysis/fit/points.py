"""What a fit is made from, and what it finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from iscsitrace.analysis.model.estimate import Estimate
from iscsitrace.analysis.model.setting import Leg, Setting

REASONS: Final = {
    "slow_start": "TCP's window had still to grow at the start of a job",
    "lossy": "packets were lost, or the window was still small after a loss",
    "incomplete": "the capture misses some of it, or it was aborted",
    "pause": "a pause between jobs followed",
    "no_period": "no command followed",
    "other_block": "another block size, or too few outstanding: metadata, tails, ends of jobs",
}
"""Why a task does not count."""

BOUNDS_OF_QUEUES: Final = ("cycle", "line", "window", "receiver")
"""What limits tasks that are outstanding together, as the budget has it: their own time; the line; a window per round
trip; a receiver that keeps its window shut for longer."""


@dataclass(frozen=True)
class Seen:
    """What the packets of one point show of the parameters, without any other point."""

    bound: str
    """One of BOUNDS_OF_QUEUES; at queue depth 1 the cycle."""
    k: Estimate | None
    """One-way delays of a cycle; None at more than queue depth 1, where nobody sees whose delay it is."""
    service_ns: Estimate | None
    """What neither path, line nor windows explain; None likewise."""
    transfer_ns: Estimate
    """What the line is busy with one block; where the receiver is the limit, what that takes for it."""
    stall_ns: float
    """Waits for windows in one cycle; at more than queue depth 1 they are in the bound."""
    legs: tuple[Leg, ...]
    """What k is made of: the path's part of each interval that the tap saw."""


@dataclass(frozen=True)
class Point:
    """The steady cycles of one kind in one session of one capture: same operation, block size and queue depth."""

    name: str
    """Such as ``wan/initiator.pcapng, session 0, read 128 KiB, QD 1``."""
    setting: Setting
    """As far as the packets tell it: block, delay, queue depth, window, keys in force, rate of the line."""
    period_ns: float
    """Of one task, robust mean: a command to the next, or, of several outstanding, to the one that took its place."""
    period_spread_ns: float
    """Standard error of that."""
    throughput_bytes_per_s: float
    """Of its steady cycles."""
    cycle_count: int
    """Tasks in these."""
    left_out: dict[str, int]
    """Tasks by why they do not count: see REASONS."""
    parts_ns: dict[str, float]
    """The time budget of the cycles that count, robust mean of one period."""
    delay_ns: Estimate
    """One way, of the path."""
    seen: Seen


@dataclass(frozen=True)
class Fit:
    """What ``model fit`` prints."""

    k: Estimate
    d_ns: Estimate
    """One-way delay; of captures at several delays the median, the others stand in ``points``."""
    s_ns: Estimate
    c_bytes_per_s: Estimate | None
    """None where payload came in single packets, which show no pace: taken to need no time."""
    k_of_legs: float
    """Delays of the legs that a cycle of ``setting`` has to pay: what k should be."""
    legs: tuple[Leg, ...]
    """What the packets show k to be made of."""
    setting: Setting
    """Of most cycles, with s and C as found: where a what-if begins."""
    points: tuple[Point, ...]
    models_ns: tuple[float, ...]
    """The period of each point by the model."""
    residuals: tuple[float, ...]
    """Of each point: period measured / period of the model, less 1."""
    cycles_used: int
    cycles_left_out: dict[str, int]
    undetermined: tuple[str, ...]
    """What the captures alone could not separate, in words, and what was assumed instead."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: names as in ``model fit --json``."""
        return {
            "k": self.k.as_dict(),
            "d_ns": self.d_ns.as_dict(),
            "s_ns": self.s_ns.as_dict(),
            "c_bytes_per_s": self.c_bytes_per_s and self.c_bytes_per_s.as_dict(),
            "k_of_legs": self.k_of_legs,
            "legs": [{"name": leg.name, "delays": leg.delays, "meaning": leg.meaning} for leg in self.legs],
            "setting": asdict(self.setting),
            "residuals": [
                {
                    "point": point.name,
                    "operation": point.setting.operation,
                    "block_bytes": point.setting.block_bytes,
                    "queue_depth": point.setting.queue_depth * point.setting.connections,
                    "delay_ns": point.delay_ns.as_dict(),
                    "cycle_count": point.cycle_count,
                    "left_out": point.left_out,
                    "throughput_bytes_per_s": point.throughput_bytes_per_s,
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
