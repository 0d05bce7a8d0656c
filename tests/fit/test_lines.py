"""Which points have the rate of their line as C, and which share it with other sessions: tables made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iscsitrace.fit.points import Point, Seen
from iscsitrace.fit.steady import with_lines
from iscsitrace.measure.line import Line, times_by_line
from iscsitrace.model.setting import Setting
from iscsitrace.model.uncertainty import Estimate
from tests.support.tables_by_hand import MS, table

exact = Estimate.exact


def session(start_ms: int, end_ms: int, *, reads: bool = True) -> dict[str, Any]:
    """One command; ``reads``: whether it moved data."""
    times = {"command_first_ns": start_ms * MS, "status_ns": end_ms * MS}
    return {**times, "operation": "read" if reads else "inquiry", "data_bytes": 512 if reads else 36}


def point(number: int, line: Line | None, bound: str = "cycle") -> Point:
    setting = Setting("read", 65_536, 4.0 * MS, 65_536_000)
    seen = Seen(bound, exact(2.0), exact(0.0), exact(1.0 * MS), 0.0, (), line=line, data_pdu_bytes=8192)
    return Point("a", number, setting, 9.0 * MS, 0.0, 1.0, 9, {}, {}, exact(4.0 * MS), seen)


def rates(points: list[Point], others: Any, mirrors: Any = ()) -> list[tuple[float | None, int | None, bool]]:
    tables = {
        "connections": table("connections", *({"connection": number, "session": number} for number in (0, 1))),
        "senders": table("senders", *({"connection": number, "line": 7} for number in (0, 1))),
        "cycles": table("cycles", session(0, 100) | {"session": 0}, others | {"session": 1}),
    }
    found = with_lines(points, times_by_line(tables.__getitem__), cast(Any, mirrors))
    return [(each.setting.c_bytes_per_s, each.setting.data_pdu_bytes, each.seen.is_line_shared) for each in found]


LINE = Line(7, 40_000_000, 39_000_000, 41_000_000, None, 9, None)
OF_BURSTS = 65_536_000, None


@pytest.mark.parametrize(
    ("other", "is_shared"),
    [
        (session(50, 150), True),
        (session(99, 150), True),
        # one after the other, and one that moved no data, such as a discovery session
        (session(100, 150), False),
        (session(50, 150, reads=False), False),
    ],
)
def test_a_line_is_shared_by_sessions_that_read_or_write_at_the_same_time(other: Any, is_shared: bool) -> None:
    wanted = (*OF_BURSTS, True) if is_shared else (40e6, 8192, False)
    assert rates([point(0, LINE)], other) == [wanted]


def test_the_copies_of_a_mirror_are_one_workload() -> None:
    mirror = SimpleNamespace(sessions=(0, 1))
    assert rates([point(0, LINE), point(1, LINE)], session(0, 100), [mirror]) == 2 * [(40e6, 8192, False)]
    assert rates([point(0, LINE)], session(0, 100), [SimpleNamespace(sessions=(0, 2))]) == [(*OF_BURSTS, True)]


def test_without_a_line_or_with_a_slow_receiver_the_bursts_count() -> None:
    points = [point(0, None), point(0, LINE, "receiver")]
    assert rates(points, session(200, 300)) == 2 * [(*OF_BURSTS, False)]
