"""What a fit is made from, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iscsitrace.analysis.model.estimate import Estimate
from iscsitrace.analysis.model.setting import Leg, Setting


@dataclass(frozen=True)
class Point:
    """The steady cycles of one kind in one session of one capture: same operation, block size and queue depth."""

    name: str
    """Such as ``wan/initiator.pcapng, session 0, read 128 KiB, QD 1``."""
    setting: Setting
    """As far as the packets tell it: block, delay, queue depth, window, keys in force, rate of the line."""
    period_ns: float
    """Of one task: the median command to next command, times queue depth at more than one."""
    period_spread_ns: float
    """Standard error of that, by the median absolute deviation."""
    throughput_bytes_per_s: float
    """Of its steady cycles."""
    cycle_count: int
    left_out: dict[str, int]
    """Cycles by why they do not count: ``slow_start``, ``lossy``, ``incomplete``, ``other_block``, ``after_pause``."""
    parts_ns: dict[str, float]
    """The time budget of the cycles that count, per cycle."""


@dataclass(frozen=True)
class Fit:
    """What ``model fit`` prints."""

    k: Estimate
    d_ns: Estimate
    """One-way delay; of captures at several delays the median, the others stand in ``points``."""
    s_ns: Estimate
    c_bytes_per_s: Estimate
    legs: tuple[Leg, ...]
    """What the packets show k to be made of."""
    points: tuple[Point, ...]
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
            "c_bytes_per_s": self.c_bytes_per_s.as_dict(),
            "legs": [{"name": leg.name, "delays": leg.delays, "meaning": leg.meaning} for leg in self.legs],
            "residuals": [
                {"point": point.name, "period_ns": point.period_ns, "residual": residual}
                for point, residual in zip(self.points, self.residuals, strict=True)
            ],
            "cycles_used": self.cycles_used,
            "cycles_left_out": self.cycles_left_out,
            "undetermined": list(self.undetermined),
        }
