"""All known problems: the families, in the order of docs/diagnosis.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from iscsitrace.analysis.findings import (
    ack_loss,
    acknowledgments,
    alignment,
    capture,
    command_errors,
    command_window,
    connection_loss,
    distance,
    failures,
    hosts,
    idle_sessions,
    line,
    logins,
    mirrored,
    outages,
    parallel,
    path_mtu,
    paths,
    portals,
    refusals,
    reinstatement,
    reordering,
    slow_commands,
    task_timeouts,
    transport,
    writes,
)
from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Examined, Finding, Problem, in_order
from iscsitrace.analysis.findings.history import History

FAMILIES: Final = (
    distance,
    acknowledgments,
    writes,
    transport,
    reordering,
    line,
    parallel,
    paths,
    mirrored,
    hosts,
    slow_commands,
    command_window,
    failures,
    capture,
)

STORY_FAMILIES: Final = (
    path_mtu,
    ack_loss,
    task_timeouts,
    outages,
    connection_loss,
    logins,
    portals,
    reinstatement,
    command_errors,
    refusals,
    idle_sessions,
    alignment,
)
"""The families whose problems are those of a story: of sessions that took each other's place, and their connections."""

PROBLEMS: Final[dict[str, Problem]] = {
    problem.name: problem for family in (*STORY_FAMILIES, *FAMILIES) for problem in family.PROBLEMS
}
"""Every problem by name, in the order of docs/diagnosis.md."""


OF_SESSIONS: Final = frozenset(problem.name for family in FAMILIES for problem in family.PROBLEMS)
"""The names of the problems that are looked for in each session and connection alone."""


def findings_of(case: Case) -> list[Finding]:
    """What is found in a session or connection alone."""
    return _found(case, FAMILIES)


def findings_of_story(history: History) -> list[Finding]:
    """What is found in a story."""
    return _found(history, STORY_FAMILIES)


def _found(examined: Examined, families: Sequence[Any]) -> list[Finding]:
    problems = (problem for family in families for problem in family.PROBLEMS)
    return [finding for problem in problems if (finding := problem.find(examined))]


def ordered(found: Sequence[Finding]) -> list[Finding]:
    """The findings in the order of a headline, without those that are consequences of others."""
    return in_order(each for each in found if not any(each.is_explained_by(other) for other in found))
