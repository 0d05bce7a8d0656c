"""The lines of a fit's points: C is the estimated rate of the line where no other workload shares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from iscsitrace.analysis.fit.points import Point
from iscsitrace.analysis.groups.mirrors.recognition import Mirror
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.session.session import Session


def with_lines(
    points: Sequence[Point],
    sessions: Mapping[int, Session],
    sessions_by_line: Mapping[int, Sequence[int]],
    mirrors: Sequence[Mirror],
) -> list[Point]:
    """The points with the rate of their line as C. Of a line that another session filled meanwhile, each gets a part:
    there C stays the rate of the bursts. The copies of a mirror are one workload.
    """
    return [_with_line(point, sessions, sessions_by_line, mirrors) if point.seen.line else point for point in points]


def _with_line(
    point: Point,
    sessions: Mapping[int, Session],
    sessions_by_line: Mapping[int, Sequence[int]],
    mirrors: Sequence[Mirror],
) -> Point:
    own = {point.session}.union(*(mirror.sessions for mirror in mirrors if point.session in mirror.sessions))
    number = point.seen.line.number if point.seen.line else None
    on_line = sessions_by_line.get(number, ()) if number is not None else ()
    others = [sessions[each] for each in on_line if each not in own and each in sessions]
    is_shared = any(_overlap(sessions[point.session], each) for each in others)
    seen = replace(point.seen, is_line_shared=is_shared)
    if seen.own_line is None:
        return replace(point, seen=seen)
    c_bytes_per_s = float(seen.own_line.bytes_per_s)
    setting = replace(point.setting, c_bytes_per_s=c_bytes_per_s, data_pdu_bytes=seen.data_pdu_bytes)
    return replace(point, seen=seen, setting=setting)


def _overlap(one: Session, two: Session) -> bool:
    """Whether both sessions read or wrote at the same time."""
    first, second = _times_ns(one), _times_ns(two)
    return first is not None and second is not None and first[0] < second[1] and second[0] < first[1]


def _times_ns(session: Session) -> tuple[int, int] | None:
    """From the first command that moved data to the last status."""
    cycles = session.cycles.select(session.is_transfer)
    ends = cycles.raw("status_ns")[known(cycles, "status_ns")]
    return (int(cycles.raw("command_first_ns").min()), int(ends.max())) if len(ends) else None
