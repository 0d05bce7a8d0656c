"""What a report is about first, and the others after it; an opinion is told only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iscsitrace.analysis.findings.examination import Diagnosis
from iscsitrace.analysis.findings.headline import NONE, TOO_SHORT, Verdict
from iscsitrace.report import subject as subjects
from iscsitrace.report.subject import Subject


@dataclass(frozen=True)
class Entry:
    """A session or story in its place."""

    label: str
    sessions: tuple[int, ...]
    verdict: Verdict
    tell: Callable[[], Subject]
    """Makes its headline and findings as text."""


def entries(diagnosis: Diagnosis, order: list[int], session: int | None) -> tuple[Entry | None, list[Entry]]:
    """What the report is about first, and the others: what broke, then in the ``order`` of sessions.

    By default sessions that took each other's place are one subject, and that of the headline is the first; where the
    headline names no problem, the first in order. A requested session is the first, on its own.
    """
    place = {number: index for index, number in enumerate(order)}

    def weight(each: Entry) -> tuple[bool, float, int]:
        is_failure = each.verdict.is_failure
        first = min((place[number] for number in each.sessions if number in place), default=len(place))
        return not is_failure, -(each.verdict.cost_ns or 0.0) if is_failure else 0.0, first

    every = [_of_story(diagnosis, index) for index in range(len(diagnosis.stories))]
    rest = sorted(every, key=weight)
    if session is not None:
        own = next((each for each in rest if session in each.sessions), None)
        others = [_of_session(diagnosis, each) for each in own.sessions if each != session] if own else []
        return _of_session(diagnosis, session), [*others, *(each for each in rest if each is not own)]
    worst = diagnosis.stories.worst
    has_problem = worst is not None and every[worst].verdict.name not in (NONE, TOO_SHORT)
    lead = every[worst] if worst is not None and has_problem else next(iter(rest), None)
    return lead, [each for each in rest if each is not lead]


def _of_story(diagnosis: Diagnosis, place: int) -> Entry:
    stories = diagnosis.stories
    return Entry(
        stories.labels[place],
        stories.numbers[place],
        stories.verdicts[place],
        lambda: subjects.of_story(stories[place], diagnosis.sessions),
    )


def _of_session(diagnosis: Diagnosis, number: int) -> Entry:
    return Entry(
        f"session {number}",
        (number,),
        diagnosis.sessions.verdicts[number],
        lambda: subjects.of_session(diagnosis.sessions[number]),
    )
