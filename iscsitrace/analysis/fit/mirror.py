"""The points of mirrors: sessions that carry the same writes to different targets are one point.

A mirrored write is done when the last target has it, so its point is that of the farthest target. The nearer sessions
wait for it between their commands, and are no separate points. groups/mirrors finds which sessions are a mirror.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from iscsitrace.analysis.fit.points import Point
from iscsitrace.analysis.groups.mirrors.recognition import Mirror
from iscsitrace.analysis.model.prediction import predict

SHARED: Final = 0.99
"""Share of the period of copies on one line from which on a cycle shows that they share it."""


def join(points: Sequence[Point], mirrors: Sequence[Mirror]) -> list[Point]:
    """The points, with those of a mirror joined into one."""
    in_mirrors = {number for mirror in mirrors for number in mirror.sessions}
    candidates = [point for point in points if point.session in in_mirrors]
    found: list[Point] = []
    joined: set[int] = set()
    for point in points:
        if id(point) in joined:
            continue
        copies = [point]
        if point.session in in_mirrors:
            rest = (each for each in candidates if each is not point and id(each) not in joined)
            copies += (each for each in rest if _is_mirrored(point, each, mirrors))
            joined.update(map(id, copies))
        found.append(_one(copies) if len(copies) > 1 else point)
    return found


def _is_mirrored(one: Point, two: Point, mirrors: Sequence[Mirror]) -> bool:
    """Whether both are writes of one mirror, of the same size and queue depth."""
    if {one.setting.operation, two.setting.operation} != {"write"} or _asked(one) != _asked(two):
        return False
    both = {one.session, two.session}
    return len(both) > 1 and any(both <= set(mirror.sessions) for mirror in mirrors)


def _one(copies: Sequence[Point]) -> Point:
    points = sorted(copies, key=lambda point: point.setting.delay_ns)
    farthest = points[-1]
    delays_ns = tuple(point.setting.delay_ns for point in points)
    shared = replace(farthest.setting, target_delays_ns=delays_ns, service_ns=0.0)
    # a cycle faster than copies on one line could be has a line to each target
    is_shared = farthest.period_ns >= SHARED * predict(shared).period_ns
    nearer = len(points) - 1
    return replace(
        farthest,
        name=f"{farthest.name}, mirrored with {nearer} nearer {'target' if nearer == 1 else 'targets'}",
        setting=replace(shared, service_ns=farthest.setting.service_ns) if is_shared else farthest.setting,
    )


def _asked(point: Point) -> tuple[int, int, int]:
    return point.setting.block_bytes, point.setting.queue_depth, point.setting.connections
