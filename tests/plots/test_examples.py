"""Which commands and which job of a session are worth a plot."""

from __future__ import annotations

from typing import Any

from iscsitrace.plots import kind
from iscsitrace.plots.view import Zoom
from iscsitrace.relate.jobs.streams import Job
from tests.support.streams_by_hand import SECOND, Work
from tests.support.tables_by_hand import with_waits


def command(number: int, latency: int | None, moved: int = 512, **columns: Any) -> dict[str, Any]:
    start = 1_000 * number
    row = {"cycle": number, "session": 4, "connection": 2, "operation": "read", "is_read": True, "data_bytes": moved}
    times = {"command_first_ns": start, "status_ns": None if latency is None else start + latency}
    return row | {"bytes": moved} | times | columns


def found(*rows: dict[str, Any]) -> kind.Examples:
    return kind.examples_of(*with_waits(rows, {"connection": 2, "time_last_ns": 9_000}), 4, 3, [])


def test_the_typical_command_has_the_median_latency_of_those_that_moved_most() -> None:
    # 3 KiB in small reads, 3.5 in large ones, 2 in writes
    small = [command(number, 10 + number) for number in range(6)]
    large = [command(6, 70, 1_792), command(7, 50, 1_792)]
    writes = [command(8, 5, 2_048, operation="write", is_read=False)]
    # of two the faster
    assert found(*small, *large, *writes).typical == 7
    assert found(*small[:5], command(9, 1), command(10, 30), *large).typical == 2
    assert found(command(0, 9, 0)).typical is None


def test_the_slowest_command_is_shown_with_three_fifths_of_its_latency_on_either_side() -> None:
    result = found(command(0, 10), command(1, 100), command(2, 50), command(3, 900, session=5))
    assert (result.session, result.connection_count, result.slowest) == (4, 3, 1)
    assert result.around_slowest == Zoom(4, 2, time_from_ns=1_000 - 60, time_to_ns=1_100 + 60)
    assert result.command(1) == Zoom(session=4, cycles=range(1, 2))
    # without a status: until the last packet of its connection, at 9000
    hung = found(command(0, 10), command(1, 100), command(2, None))
    assert (hung.slowest, hung.typical) == (2, 0)
    assert hung.around_slowest == Zoom(4, 2, time_from_ns=2_000 - 4_200, time_to_ns=9_000 + 4_200)
    none = found(command(0, None, has_capture_gap=True))
    assert (none.slowest, none.around_slowest, none.typical, none.job) == (None, None, None, None)


def test_the_largest_job_shared_with_other_sessions_is_shown() -> None:
    work = Work()
    for session in (None, None):
        work.stream(1_000, session=session)
    for session in (0, 1):
        work.stream(1_000, session=session, size=131_072, start_ms=4_000)
    # a larger one of session 0 alone
    for _ in range(2):
        work.stream(1_000, session=0, size=262_144, start_ms=8_000)
    jobs = work.jobs()
    assert [{run.session for run in job.runs} for job in jobs] == [{0, 1}, {0, 1}, {0}]

    def shown(session: int, *of: Job) -> Zoom | None:
        return kind.examples_of(*with_waits([]), session, 1, of).job

    first, second = (
        Zoom(time_from_ns=start * SECOND, time_to_ns=(start + 1) * SECOND, to_target=False) for start in (1, 5)
    )
    assert (shown(0, *jobs), shown(0, *jobs[::-1]), shown(1, jobs[0])) == (second, second, first)
    assert (shown(0, jobs[2]), shown(2, *jobs)) == (None, None)
