"""Mirrors among the points of a trace: sessions that write the same at the same time, each to a target of its own.

A mirrored write is done when the last target has it, so its point is that of the farthest; nearer sessions wait for it
between their tasks, and are no points of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.model.points import Point
from iscsitrace.analysis.model.prediction import predict

Array = NDArray[Any]

TOGETHER: Final = 0.9
"""Share of the cycles that have to begin together."""
AT_ONCE: Final = 0.05
"""Share of a period within which they do: of sessions that know nothing of each other a tenth would, by chance."""
SHARED: Final = 0.99
"""Share of the period with all copies on one line that a cycle has to take for them to share it."""


@dataclass(frozen=True)
class Candidate:
    """A point, and when its cycles began."""

    point: Point
    starts: Array

    def is_mirrored_by(self, other: Candidate) -> bool:
        """Whether both write the same at the same time."""
        one, two = self.point, other.point
        if one.setting.operation != "write" or _asked(one) != _asked(two):
            return False
        fewer, more = sorted((self.starts, other.starts), key=len)
        places = np.searchsorted(more, fewer).clip(1, len(more) - 1)
        off = np.minimum(np.abs(more[places] - fewer), np.abs(more[places - 1] - fewer))
        is_together = off <= AT_ONCE * min(one.period_ns, two.period_ns)
        return bool(is_together.mean() >= TOGETHER and len(fewer) >= TOGETHER * len(more))


def join(candidates: Sequence[Candidate]) -> list[Point]:
    """The points, those of a mirror as one."""
    found = []
    left = list(candidates)
    while left:
        first = left.pop(0)
        copies = [first, *(each for each in left if each.is_mirrored_by(first))]
        left = [each for each in left if not any(each is copy for copy in copies)]
        found.append(_one(copies) if len(copies) > 1 else first.point)
    return found


def _one(copies: Sequence[Candidate]) -> Point:
    points = sorted((each.point for each in copies), key=lambda point: point.setting.delay_ns)
    farthest = points[-1]
    delays_ns = tuple(point.setting.delay_ns for point in points)
    shared = replace(farthest.setting, target_delays_ns=delays_ns, service_ns=0.0)
    # a cycle that is done sooner than copies on one line could be has a line to each target
    is_shared = farthest.period_ns >= SHARED * predict(shared).period_ns
    nearer = len(points) - 1
    return replace(
        farthest,
        name=f"{farthest.name}, of a mirror with {nearer} nearer {'target' if nearer == 1 else 'targets'}",
        setting=replace(shared, service_ns=farthest.setting.service_ns) if is_shared else farthest.setting,
    )


def _asked(point: Point) -> tuple[int, int, int]:
    return point.setting.block_bytes, point.setting.queue_depth, point.setting.connections
