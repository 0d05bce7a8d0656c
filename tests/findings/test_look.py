"""Where problems are looked for: no finding is missed elsewhere, and a healthy session is not searched for failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import iscsitrace
from iscsitrace.diagnosis import examination, registry
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Found, Problem, anywhere
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.grouping import Grouping
from tests.support.histories import Told
from tests.support.recordings import recorded_captures
from tests.support.story import Story
from tests.support.tables_by_hand import MS

SOUGHT = Problem.sought
ROOT = Path(__file__).parents[2]
KEPT = sorted(file for folder in ("samples", "tests/vectors") for file in (ROOT / folder).rglob("*.pcapng.gz"))


def sought_anywhere(problem: Problem, facts: Facts) -> Found | NDArray[Any]:
    """As `Problem.sought`; what has to be looked at is looked for in all that have enough time to explain."""
    found = SOUGHT(problem, facts)
    return found if isinstance(found, Found) else SOUGHT(replace(problem, where=anywhere), facts)


@pytest.mark.parametrize("file", [*KEPT, *recorded_captures()], ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_finding_is_missed_where_it_is_not_looked_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = iscsitrace.read(file, tables=NEEDED)
    found = examination.examine(trace.table)
    monkeypatch.setattr(Problem, "sought", sought_anywhere)
    whole = examination.examine(trace.table)
    for some, others in ((found.sessions, whole.sessions), (found.connections, whole.connections)):
        assert [each.as_dict() for each in some.values()] == [each.as_dict() for each in others.values()]
    assert [each.as_dict() for each in found.stories] == [each.as_dict() for each in whole.stories]


def test_there_are_captures_to_look_at() -> None:
    assert len(KEPT) >= 36


def test_a_healthy_session_is_not_searched_for_what_broke() -> None:
    told = Told()
    for number, end in enumerate(("logout", "reset")):
        told.session(3 * number, 3 * number + 2, end=end)
        told.reads(number, 3 * number + 0.1, 9)
        told.rows["sessions"][number]["cycle_count"] = 9
    grouping = Grouping(told.source())
    facts = grouping.facts_together([((0,), (0,)), ((1,), (1,))])
    _, (healthy, lost) = registry.look(facts, registry.of_scopes("story"))
    assert healthy == []
    assert [problem.name for problem in lost] == ["connection_lost"]


def test_shares_of_columns_are_those_of_the_session() -> None:
    story = Story().tasks(9, ("propagation", 16 * MS)).task(("transfer", 3 * MS))
    grouping = Grouping(story.source())
    facts, session = grouping.sessions.facts, grouping.sessions[0]
    assert facts.jobs_ns.tolist() == [session.jobs_ns]
    for part in ("propagation", "transfer", "outage"):
        assert facts.part_ns(part).tolist() == [session.part_ns(part)]
        assert facts.share(facts.part_ns(part)).tolist() == [session.share(session.part_ns(part))]


def test_columns_count_the_rows_of_each_subject() -> None:
    told = Told()
    for first in (0, 3):
        told.session(first, first + 2)
    told.reads(1, 3.1, 5)
    told.add("nops", connection=1, request_ns=4.0)
    told.connection(6, 7)
    grouping = Grouping(told.source())
    sessions = grouping.sessions.facts
    assert sessions.count("cycles").tolist() == [0, 5]
    assert sessions.count("nops").tolist() == [0, 1]
    assert sessions.count("connections").tolist() == [1, 1]
    together = grouping.facts_together([((), (2,)), ((0, 1), (0, 1))])
    assert together.count("cycles").tolist() == [0, 5]
    assert together.count("connections").tolist() == [1, 2]
    assert together.jobs_ns.tolist() == [0, sessions.jobs_ns.sum()]
    is_even = together.count("cycles", lambda cycles: np.asarray(cycles.raw("cycle") % 2 == 0))
    assert is_even.tolist() == [0, 3]


def test_the_logical_units_of_a_session_are_those_that_it_reads_or_writes() -> None:
    told = Told()
    for first in (0, 3):
        told.session(first, first + 2)
    for number, lun in ((0, 7), (0, 1 << 40), (0, 7), (1, 2)):
        told.read(number, 3 * number + 0.1, 3 * number + 0.2, lun=lun)
    # a command that moves no data
    told.read(1, 3.3, 3.4, lun=9, operation="inquiry", is_read=False, bytes=0, data_bytes=0)
    sessions = Grouping(told.source()).sessions
    assert [sessions[number].luns for number in (0, 1)] == [(7, 1 << 40), (2,)]
