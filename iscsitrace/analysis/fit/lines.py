"""The lines of a fit's points: C is the estimated rate of the line where no other workload shares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from iscsitrace.analysis.fit.points import Point
from iscsitrace.analysis.groups.mirrors.recognition import Mirror
from iscsitrace.analysis.measures.intervals import Span
from iscsitrace.analysis.session import line


def with_lines(
    points: Sequence[Point],
    times_by_line: Mapping[int, Mapping[int, Span]],
    mirrors: Sequence[Mirror],
) -> list[Point]:
    """The points with the rate of their line as C. Of a line that another session filled meanwhile, each gets a part:
    there C stays the rate of the bursts. The copies of a mirror are one workload.
    """
    return [_with_line(point, times_by_line, mirrors) if point.seen.line else point for point in points]


def _with_line(
    point: Point,
    times_by_line: Mapping[int, Mapping[int, Span]],
    mirrors: Sequence[Mirror],
) -> Point:
    own = {point.session}.union(*(mirror.sessions for mirror in mirrors if point.session in mirror.sessions))
    number = point.seen.line.number if point.seen.line else None
    times = times_by_line.get(number, {}) if number is not None else {}
    seen = replace(point.seen, is_line_shared=not own.issuperset(line.sharing(times, point.session)))
    if seen.own_line is None:
        return replace(point, seen=seen)
    c_bytes_per_s = float(seen.own_line.bytes_per_s)
    setting = replace(point.setting, c_bytes_per_s=c_bytes_per_s, data_pdu_bytes=seen.data_pdu_bytes)
    return replace(point, seen=seen, setting=setting)
