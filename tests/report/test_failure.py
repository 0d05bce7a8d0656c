"""The facts of a failure, and the subject that they are of: by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from iscsitrace.diagnosis.headline import Headline, of_finding
from iscsitrace.diagnosis.opinions import Opinion, StoryOpinion
from iscsitrace.diagnosis.subject import Subject, of_story
from iscsitrace.findings.finding import Finding
from iscsitrace.measure.budget import PARTS, Budget, added
from iscsitrace.measure.intervals import Span
from iscsitrace.relate.stories import Story
from iscsitrace.report.chapters import failure_facts, in_flight
from iscsitrace.tables.numbers import NumberedRows
from tests.support.tables_by_hand import MS, table

SECOND = 1_000 * MS
START = 5 * SECOND


def finding(name: str, rank: str = "failure", share: float | None = None, **columns: Any) -> Finding:
    problem: Any = SimpleNamespace(name=name, rank=rank, advice=())
    return Finding(problem, "error", share, name, (), **columns)


def subject_of(found: Finding, *sessions: int) -> Subject:
    return Subject("sessions 0 and 1", sessions or (0, 1), of_finding(found), (found,), None)


def trace(write_ns: int = SECOND) -> Any:
    """Session 0 has a read of 1 s to 3 s and one without a status until 4 s, session 1 a write of 3.5 s to 4.5 s;
    ``write_ns`` is how long that took.
    """
    read = {"operation": "read", "is_read": True, "session": 0, "connection": 0, "bytes": 512}
    cycles = [
        read | {"cycle": 0, "command_first_ns": START + SECOND, "status_ns": START + 3 * SECOND},
        read | {"cycle": 1, "command_first_ns": START + 2 * SECOND, "status_ns": None},
        {
            "cycle": 2, "operation": "write", "is_write": True, "session": 1, "connection": 1, "bytes": 512,
            "command_first_ns": START + 3_500 * MS, "status_ns": START + 3_500 * MS + write_ns,
        },
    ]  # fmt: skip
    connections = [
        {"connection": 0, "session": 0, "time_first_ns": START, "time_last_ns": START + 4 * SECOND},
        {"connection": 1, "session": 1, "time_first_ns": START + 3 * SECOND, "time_last_ns": START + 9 * SECOND},
    ]
    return SimpleNamespace(
        cycles=table("cycles", *cycles),
        connections=table("connections", *connections),
        task_management=table("task_management"),
        start_ns=START,
    )


def facts(found: Finding, *sessions: int) -> dict[str, tuple[str, str]]:
    return {fact.name: (fact.value, fact.meaning) for fact in failure_facts(trace(), subject_of(found, *sessions))}


def test_when_what_it_cost_what_it_hit_and_whose_side() -> None:
    span = (START + 2_500 * MS, START + 3_600 * MS)
    found = facts(finding("gone", spans=(span,), cost_ns=1_100 * MS, share=0.25, luns=(0, 2), points_to="the path"))
    assert found == {
        "When": ("2.50 s to 3.60 s", "from 1970-01-01 00:00:07.500 UTC"),
        "Time lost": ("1.1 s", "25 % of the I/O time"),
        "Affected": ("sessions 0 and 1", "LUNs 0 and 2"),
        "In flight meanwhile": ("2 READ and 1 WRITE commands", "up to 2.0 s each, 1 without a status"),
        "Points to": ("the path", ""),
    }


@pytest.mark.parametrize(
    ("spans", "shown"),
    [
        (((START + SECOND, START + SECOND),), "at 1.00 s"),
        # as far as two decimals tell
        (((START + SECOND, START + SECOND + MS),), "at 1.00 s"),
        (((START + 4 * SECOND, START + 5 * SECOND), (START + SECOND, START + 2 * SECOND)), "2 times, 1.00 s to 5.00 s"),
    ],
)
def test_an_instant_and_several_times(spans: tuple[Span, ...], shown: str) -> None:
    assert facts(finding("gone", spans=spans))["When"][0] == shown


def test_a_stop_without_io_is_no_share_of_the_io_time() -> None:
    assert facts(finding("gone", cost_ns=40 * SECOND, share=1.0))["Time lost"] == ("40.0 s", "")


def test_what_is_not_known_is_not_said() -> None:
    found = facts(finding("gone"), 1)
    assert found == {"Affected": ("session 1", ""), "Points to": ("cannot tell from these packets", "")}
    # where others waited, one of less than a second did not
    around = ((START + 2_500 * MS, START + 3_600 * MS),)
    counts = [len(in_flight(trace(length_ns), (0, 1), around)) for length_ns in (SECOND - 1, SECOND)]
    assert counts == [2, 3]
    assert len(in_flight(trace(SECOND - 1), (1,), around)) == 1
    # one without a status was in flight as its connection ended
    assert len(in_flight(trace(), (0,), ((START + 4 * SECOND, START + 5 * SECOND),))) == 1
    # a write of less than a second, with which a stop began, did not wait for its end
    spans = [((START + 3_500 * MS, START + end * SECOND),) for end in (5, 40)]
    assert [len(in_flight(trace(SECOND - 1), (1,), each)) for each in spans] == [1, 0]
    # a command that ended as the time began, or began as it ended, was not in flight in it
    span = (START + 3 * SECOND, START + 3_500 * MS)
    assert facts(finding("gone", spans=(span,)))["In flight meanwhile"][0] == "1 READ command"
    assert facts(finding("slow", rank="slowness", spans=(span,))) == {}


def test_many_sessions_are_counted() -> None:
    assert facts(finding("gone"), *range(7))["Affected"] == ("7 sessions", "")


def test_a_story_has_the_findings_and_the_time_of_its_sessions_each_problem_once() -> None:
    lost, slow, slower = (
        finding("lost", cost_ns=SECOND),
        finding("slow", "slowness", 0.2),
        finding("slow", "slowness", 0.4),
    )
    times = [Budget(dict.fromkeys(PARTS, 0) | {"transfer": ns}, {"scan": ns}, {"scan": ns}) for ns in (3, 4)]
    opinions = {
        number: Opinion(number, Headline(""), times[number], Mock(), [lost, found])
        for number, found in enumerate((slow, slower))
    }
    connections = ({"connection": 5, "session": 0}, {"connection": 6, "session": None})
    rows = (
        NumberedRows(table("sessions", {"session": 0}, {"session": 1}), "session"),
        NumberedRows(table("connections", *connections), "connection"),
    )
    told = StoryOpinion(Story((0, 1), (5, 6), *rows), "sessions 0 and 1", of_finding(lost), [lost], added(times))
    found = of_story(told, opinions)
    assert found.findings == (lost, slower)
    assert found.failure is lost
    assert found.time is not None
    assert (found.time.jobs_ns, found.time.total_ns, found.time.uses_ns) == (7, 14, {"scan": 7})
    every = table("connections", {"connection": 7, "session": 0}, *connections)
    assert [row["connection"] for row in found.rows_of(every)] == [5, 6]
    assert [row["connection"] for row in replace(found, connections=None).rows_of(every)] == [7, 5]
    alone = of_story(StoryOpinion(Story((0,), (5, 6), *rows), "session 0", Headline("Slow."), [], None), opinions)
    assert (alone.label, alone.headline.text, alone.failure) == ("session 0", "", None)


def test_no_time_breakdowns_have_no_sum() -> None:
    assert added([]) is None
