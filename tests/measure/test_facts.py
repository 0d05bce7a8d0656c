"""Facts over all sessions, or connections, against the same measured in each alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import iscsitrace
from iscsitrace.findings import NEEDED
from iscsitrace.findings.case import Case, Groups
from iscsitrace.measure import all_waits
from iscsitrace.measure.all_waits import WaitsOfAll
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.grouping import Grouping, Subjects
from tests.support.recordings import recorded_captures

ROOT = Path(__file__).parents[2]
KEPT = sorted(file for folder in ("samples", "tests/vectors") for file in (ROOT / folder).rglob("*.pcapng.gz"))
FILES = [*KEPT, *recorded_captures()]


def each_number(found: NDArray[Any], numbers: list[int]) -> list[Any]:
    """The values of these sessions."""
    return [found[number].item() for number in numbers]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
@pytest.mark.parametrize("kind", ["sessions", "connections"])
def test_columns_are_what_each_subject_has_alone(file: Path, kind: str) -> None:
    grouping = Grouping(iscsitrace.read(file, tables=NEEDED).table)
    subjects: Subjects = getattr(grouping, kind)
    facts, numbers = subjects.facts, list(subjects)
    alone = {number: subjects[number] for number in numbers}
    for part in PARTS:
        waits = all_waits.of_parts(facts, part)
        assert each_number(waits.sums_ns(facts), numbers) == [
            subject.stretches(part).total_ns for subject in alone.values()
        ]
    groups = Groups((), (), iscsitrace.read(file, tables=NEEDED).cycles)
    of_each = all_waits.spans(facts)
    for number, subject in alone.items():
        spans = Case(subject, groups).spans
        assert spans in (of_each[number], ())
        assert bool(spans) == bool(len(subject.busy))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_time_within_intervals_is_that_of_each_session_alone(file: Path) -> None:
    chance = np.random.default_rng(7143)
    trace = iscsitrace.read(file, tables=NEEDED)
    sessions = Grouping(trace.table).sessions
    facts = sessions.facts
    first_ns = trace.connections.raw("time_first_ns").min()
    length_ns = int(trace.connections.raw("time_last_ns").max() - first_ns) + 1
    for part in ("propagation", "transfer", "target_service"):
        place = chance.integers(0, len(facts), 60) if len(facts) else np.zeros(0, dtype=np.int64)
        starts = first_ns + chance.integers(0, length_ns, len(place))
        # some end before they begin
        ends = starts + chance.integers(-length_ns // 50, length_ns // 10 + 2, len(place))
        found = all_waits.claimed_ns(facts, all_waits.of_parts(facts, part), place, starts, ends)
        waits = all_waits.with_next(facts, all_waits.of_parts(facts, part))
        for number, session in sessions.items():
            own = place == number
            assert found[number] == session.stretches(part).within_ns(starts[own], ends[own])
            alone = session.stretches(part)
            if len(alone.starts):
                rows = session.rows_of(session.with_next(alone).cycle)
                assert trace.cycles.raw("cycle")[waits.row[waits.place == number]].tolist() == (
                    session.cycles.raw("cycle")[rows].tolist()
                )


def test_times_that_do_not_fit_on_one_line_are_looked_at_one_session_after_the_other() -> None:
    (file,) = [file for file in KEPT if file.parent.name == "black-out-and-relogin"]
    facts = Grouping(iscsitrace.read(file, tables=NEEDED).table).sessions.facts
    assert len(facts) == 2
    far = 1 << 62
    waits = WaitsOfAll(np.array([0, 1]), np.array([-far, far - 10]), np.array([10 - far, far]), np.array([0, 0]))
    place, starts, ends = np.array([0, 1, 1]), np.array([5 - far, far - 4, 5]), np.array([far, far + 9, 4])
    assert all_waits.claimed_ns(facts, waits, place, starts, ends).tolist() == [5, 4]
    assert all_waits.claimed_ns(facts, waits, place, ends, ends).tolist() == [0, 0]
