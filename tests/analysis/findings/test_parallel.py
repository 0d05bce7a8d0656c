"""Uneven connections: which job is reported, by bytes or by time, and in which words and frames."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.analysis.findings.case import Groups
from iscsitrace.analysis.findings.finding import Observation
from iscsitrace.analysis.findings.parallel import UNEVEN_CONNECTIONS
from tests.support.tables_by_hand import MS, table

CYCLES = table(
    "cycles", *({"cycle": number, "command_frame": 10 + number, "status_frame": 20 + number} for number in range(6))
)


def run(connection: int, megabytes: float, busy_ms: int, last_row: int = 0) -> Any:
    amounts = {"bytes": int(megabytes * 1e6), "busy_ns": busy_ms * MS}
    return SimpleNamespace(connection=connection, label=f"connection {connection}", last_row=last_row, **amounts)


def job(*runs: Any, cause: Any = None, is_certain: bool = True) -> Any:
    """The last of these runs is the slowest."""
    slowest = SimpleNamespace(run=runs[-1], cause=cause, evidence=SimpleNamespace(retransmission_rate=0.034))
    facts = {"jain": 0.8, "first_to_last_ns": 70 * MS, "alone_share": 0.25, "is_certain": is_certain}
    return SimpleNamespace(runs=runs, streams=runs, slowest=slowest, **facts)


def observed(*jobs: Any, connections: tuple[int, ...] = (3,), decoded: int = 100) -> Observation | None:
    part = {"explained_bytes_to_target": decoded, "explained_bytes_to_initiator": decoded}
    whole = {"stream_bytes_to_target": 100, "stream_bytes_to_initiator": 100}
    subject = SimpleNamespace(connections=[{"connection": number} | part | whole for number in connections])
    case: Any = SimpleNamespace(subject=subject, groups=Groups((), jobs, CYCLES))
    return UNEVEN_CONNECTIONS.observe(case)


def frames(found: Observation) -> list[int]:
    return [frame for frame in found.frames if frame is not None]


TOGETHER = (
    "streams of one job, Jain's fairness index 0.80: the last finishes 70.0 ms after the first, and runs alone for "
    "25 % of the job"
)


def test_the_busiest_and_the_least_busy_connection_are_compared() -> None:
    found = observed(job(run(4, 1, 200, 1), run(3, 1, 400, 2), run(5, 1, 100, 3)))
    assert found
    assert found.text == f"connection 3 was busy for 400.0 ms, connection 5 for 100.0 ms; 3 {TOGETHER}"
    # a mean of 233 ms
    assert found.share == pytest.approx(1 - 700 / 3 / 400)
    assert frames(found) == [12, 22, 13, 23]
    assert found.severity == "warning"


def test_bytes_are_compared_where_they_are_more_uneven_than_the_time() -> None:
    more = observed(job(run(3, 8.249999, 100, 4), run(4, 2.050001, 100, 5), is_certain=False))
    assert more
    assert more.text == f"connection 3 carried 8.2 MB, connection 4 2.1 MB at the same time; 2 {TOGETHER}"
    assert (more.share, more.severity) == (pytest.approx(1 - 10.3 / 2 / 8.249999), "info")
    assert frames(more) == [14, 24, 15, 25]
    equal = observed(job(run(3, 2, 100), run(4, 1, 200)))
    assert equal
    assert equal.text.startswith("connection 4 was busy for 200.0 ms, connection 3 for 100.0 ms;")
    assert equal.share == 0.25


def test_the_cause_of_the_slowest_stream_is_named_and_shown_first() -> None:
    cause = SimpleNamespace(words="it lost packets", frame=99)
    found = observed(job(run(3, 1, 100, 1), run(4, 1, 300, 2), cause=cause))
    assert found
    assert found.text.endswith("of the job; connection 4 is slowest because it lost packets (3 % retransmissions)")
    assert frames(found) == [99, 12, 22, 11, 21]


def test_a_quarter_of_the_time_is_uneven() -> None:
    # 1 - 75 / 100 and 1 - 75.5 / 100
    assert observed(job(run(3, 1, 100), run(4, 1, 50)))
    assert observed(job(run(3, 1, 100), run(4, 1, 51))) is None


def test_the_worst_job_of_the_session_s_connections_is_reported() -> None:
    even, uneven, worst = (
        job(run(number, 1, 400), run(number + 1, 1, busy)) for number, busy in ((3, 400), (4, 200), (5, 40))
    )
    assert observed(even, uneven, worst) is None
    found = observed(even, uneven, worst, connections=(3, 4))
    assert found
    assert found.share == 0.25
    found = observed(even, uneven, worst, connections=(4, 5))
    assert found
    assert found.share == pytest.approx(0.45)
    assert observed() is None


@pytest.mark.parametrize(("decoded", "is_found"), [(98, True), (97, False)])
def test_bytes_that_are_not_known_are_not_compared(decoded: int, is_found: bool) -> None:
    found = observed(job(run(3, 2, 100), run(4, 1, 200)), decoded=decoded)
    assert (found is not None) == is_found
