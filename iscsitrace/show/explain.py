"""The page of a finding: what it means, when it is reported, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from iscsitrace.findings.thresholds import WARNING
from iscsitrace.show.document import Section
from iscsitrace.wording import amounts

if TYPE_CHECKING:
    from iscsitrace.findings.finding import Problem

RANKS: Final = {
    "failure": "something broke",
    "slowness": f"a problem, from {amounts.percent(WARNING)} of the I/O time on",
    "limit": "a limit of the path or the load, never a warning",
    "note": "a note",
}
"""In the order of pages."""


def facts(problem: Problem) -> Iterator[tuple[str, str]]:
    """What is to know of it beside its meaning and its advice."""
    yield "Rank", RANKS[problem.rank]
    yield "Condition", problem.condition
    yield "Evidence", problem.evidence
    yield "Example", problem.example
    if problem.shown_by:
        yield "See it", f"`iscsitrace simulate {problem.shown_by} -o DIR`"
    if problem.explains:
        yield "Explains", f"`{problem.explains.part}`"
    if problem.scope == "session":
        yield "Scope", "sessions only"


def advice(problem: Problem) -> Iterator[str]:
    """Its advice, each with what it touches."""
    for each in problem.advice:
        yield each.text + (f" ({each.touches})" if each.touches else "")


def sections(problem: Problem) -> Iterator[Section]:
    """The page as text."""
    lines = (f"{name}: {text}".replace("`", "") for name, text in facts(problem))
    yield Section(problem.name, (problem.meaning, "", *lines))
    steps = tuple(f"  {number}. {step}".replace("`", "") for number, step in enumerate(advice(problem), start=1))
    if steps:
        yield Section("What to do", steps)
