"""Uneven connections: which job is reported, by bytes or by time, and in which words and frames."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from iscsitrace.diagnosis import registry
from iscsitrace.findings.case import Groups
from iscsitrace.findings.finding import Observation
from iscsitrace.findings.parallel import UNEVEN_CONNECTIONS, _loads
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.busy import BUSY
from iscsitrace.measure.facts import Facts
from iscsitrace.tables.nulls import numbers_of
from tests.support.tables_by_hand import MS, table

SESSIONS = 8
CYCLES = table(
    "cycles",
    *(
        {"cycle": number, "command_frame": 10 + number, "status_frame": 20 + number, "connection": 3 + number % 2}
        | {"command_first_ns": number * 10 * MS}
        for number in range(6)
    ),
)


def run(
    connection: int, megabytes: float, busy_ms: int, last_row: int = 0, session: int | None = None, first_ms: int = 0
) -> Any:
    """A run of a connection, of a session of the same number or another, that ends with its busy time."""
    amounts = {"bytes": int(megabytes * 1e6), "busy_ns": busy_ms * MS, "last_ns": busy_ms * MS}
    amounts["first_ns"] = first_ms * MS
    names = {"connection": connection, "label": f"connection {connection}"}
    return SimpleNamespace(session=connection if session is None else session, last_row=last_row, **names, **amounts)


def job(*runs: Any, cause: Any = None, is_certain: bool = True, whole_ms: int = 0) -> Any:
    """The last of these runs is the slowest. Without a length of the job the busiest is busy all the time."""
    whole_ns = whole_ms * MS or max(each.busy_ns for each in runs)
    slowest = SimpleNamespace(run=runs[-1], cause=cause, evidence=SimpleNamespace(retransmission_rate=0.034))
    facts = {"jain": 0.8, "first_to_last_ns": 70 * MS, "alone_share": 0.25, "is_certain": is_certain}
    facts |= {"first_ns": 0, "whole_ns": whole_ns}
    return SimpleNamespace(runs=runs, streams=runs, slowest=slowest, **facts)


def observed(*jobs: Any) -> Observation:
    """What is told of the session of connection 3."""
    subject = SimpleNamespace(connections=[{"connection": 3}])
    case: Any = SimpleNamespace(subject=subject, groups=Groups((), jobs, CYCLES))
    found = UNEVEN_CONNECTIONS.tell(case)
    assert found
    return found


def measured(*jobs: Any, session: int = 3, decoded: int = 100) -> tuple[float, str] | None:
    """Share and severity for a session."""
    part = {"explained_bytes_to_target": decoded, "explained_bytes_to_initiator": decoded}
    whole = {"stream_bytes_to_target": 100, "stream_bytes_to_initiator": 100}
    rows = ({"connection": number, "session": number} | part | whole for number in range(SESSIONS))
    tables = {"connections": table("connections", *rows)} | {
        name: table(name) for name in ("sessions", "budget", "cycles")
    }
    sums_ns = np.zeros((SESSIONS, BUSY + 1, len(PARTS)), dtype=np.int64)
    facts = Facts(tables.__getitem__, lambda name: numbers_of(tables[name], "session"), sums_ns)
    facts.give(Groups((), jobs, CYCLES))
    found = {number: own[0] for number, own in registry.look(facts, [UNEVEN_CONNECTIONS])[0].items()}
    return (found[session].share or 0.0, found[session].severity) if session in found else None


def frames(found: Observation) -> list[int]:
    return [frame for frame in found.frames if frame is not None]


TOGETHER = (
    "connections worked in parallel (Jain's fairness index 0.80): the last one finished 70.0 ms after the first and "
    "ran alone for 25 % of the time"
)


def test_the_busiest_and_the_least_busy_connection_are_compared() -> None:
    made = job(run(4, 1, 200, 1), run(3, 1, 400, 2), run(5, 1, 100, 3))
    found = observed(made)
    assert found.text == f"connection 3 was busy for 400.0 ms, connection 5 for 100.0 ms. 3 {TOGETHER}"
    assert frames(found) == [12, 22, 13, 23]
    # a mean of 233 ms
    assert measured(made) == (pytest.approx(1 - 700 / 3 / 400), "warning")
    assert [measured(made, session=number) is not None for number in range(3, 7)] == [True, True, True, False]


def test_bytes_are_compared_where_they_are_more_uneven_than_the_time() -> None:
    made = job(run(3, 8.249999, 100, 4), run(4, 2.050001, 100, 5), is_certain=False)
    more = observed(made)
    assert more.text == f"connection 3 carried 8.2 MB, connection 4 2.1 MB at the same time. 2 {TOGETHER}"
    assert frames(more) == [14, 24, 15, 25]
    assert measured(made) == (pytest.approx(1 - 10.3 / 2 / 8.249999), "info")
    equal = job(run(3, 2, 100), run(4, 1, 200))
    assert observed(equal).text.startswith("connection 4 was busy for 200.0 ms, connection 3 for 100.0 ms.")
    assert measured(equal) == (0.25, "warning")


def test_the_cause_of_the_slowest_stream_is_named_and_shown_first() -> None:
    cause = SimpleNamespace(words="it lost packets", frame=99)
    found = observed(job(run(3, 1, 100, 1), run(4, 1, 300, 2), cause=cause))
    assert found.text.endswith("of the time. Connection 4 is slowest because it lost packets (3 % retransmissions)")
    assert frames(found) == [99, 12, 22, 11, 21]


def test_a_quarter_of_the_time_is_uneven() -> None:
    # 1 - 75 / 100 and 1 - 75.5 / 100
    assert measured(job(run(3, 1, 100), run(4, 1, 50)))
    assert measured(job(run(3, 1, 100), run(4, 1, 51))) is None


def test_the_worst_job_of_a_session_is_reported() -> None:
    even, uneven, worst = (
        job(run(number, 1, 400, session=3), run(6, 1, busy), is_certain=is_certain)
        for number, busy, is_certain in ((3, 400, True), (4, 200, True), (5, 40, False))
    )
    assert measured(even) is None
    assert measured(even, uneven) == measured(uneven, even) == (0.25, "warning")
    assert measured(uneven, worst) == measured(worst, uneven) == (pytest.approx(0.45), "info")
    assert measured() is None
    # as many as are told of the first
    assert observed(job(run(3, 1, 400), run(6, 1, 200)), job(run(3, 1, 200), run(7, 1, 400))).text.startswith(
        "connection 3 was busy for 400.0 ms, connection 6 for 200.0 ms"
    )


@pytest.mark.parametrize(("decoded", "is_found"), [(98, True), (97, False)])
def test_bytes_that_are_not_known_are_not_compared(decoded: int, is_found: bool) -> None:
    found = measured(job(run(3, 2, 100), run(4, 1, 200)), decoded=decoded)
    assert (found is not None) == is_found


def test_busy_time_is_compared_with_the_time_of_the_job() -> None:
    # beside a fast target nothing is in flight for most of the time
    assert measured(job(run(3, 1, 400), run(4, 1, 100), whole_ms=600)) == (0.25, "warning")
    assert measured(job(run(3, 1, 400), run(4, 1, 100), whole_ms=601)) is None


def test_a_stream_that_only_paused_is_not_behind() -> None:
    # connection 4 has a command that begins at 50 ms, connection 5 has none
    assert measured(job(run(3, 4, 60), run(4, 1, 40))) is None
    assert measured(job(run(3, 4, 50), run(4, 1, 40)))
    assert measured(job(run(3, 4, 60), run(4, 1, 50)))
    assert measured(job(run(3, 4, 60), run(5, 1, 40)))


# --- connections that join late


def together(*sizes: tuple[int, int, int]) -> Any:
    """Reads of 1 ms each, one after another: of each connection from a time on, in ms, and their size in KB."""
    rows: list[dict[str, Any]] = [
        {"cycle": 0, "connection": connection, "operation": "read", "is_read": True, "is_complete": True}
        | {"command_first_ns": at * MS, "status_ns": (at + 1) * MS, "data_bytes": kilobytes * 1000}
        for connection, first, kilobytes in sizes
        for at in range(first, 100)
    ]
    return table("cycles", *sorted(rows, key=lambda row: row["status_ns"]))


def lost(cycles: Any, *runs: Any) -> float:
    (load,) = _loads(Groups((), (job(*runs, whole_ms=100),), cycles))
    return load.lost


def test_a_connection_that_joined_late_is_compared_from_then_on() -> None:
    early, late = run(3, 8.0, 100), run(4, 1.6, 100, first_ms=80)
    assert lost(together((3, 0, 80), (4, 80, 80)), early, late) == 0
    # half as much while both are there: 1 - 75 / 100
    assert lost(together((3, 0, 80), (4, 80, 40)), early, late) == pytest.approx(0.25)
    # it began with the other: all of their time counts
    soon = run(4, 1.6, 100, first_ms=10)
    assert lost(together((3, 0, 80), (4, 80, 80)), early, soon) == pytest.approx(1 - 4.8 / 8)


def test_what_late_connections_carried_at_the_same_time_is_told() -> None:
    cycles = together((3, 0, 80), (4, 80, 40))
    subject = SimpleNamespace(connections=[{"connection": 3}])
    jobs = (job(run(3, 8.0, 100), run(4, 0.8, 100, first_ms=80), whole_ms=100),)
    case: Any = SimpleNamespace(subject=subject, groups=Groups((), jobs, cycles))
    found = UNEVEN_CONNECTIONS.tell(case)
    assert found is not None
    # twenty reads each
    assert found.text.startswith("connection 3 carried 1.6 MB, connection 4 0.8 MB at the same time")


def test_connections_that_were_never_there_together_are_not_compared() -> None:
    assert lost(together((3, 0, 80)), run(3, 8.0, 80), run(4, 1.0, 100, first_ms=90)) == 0
