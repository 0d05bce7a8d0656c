"""All known problems: the families, in the order of docs/diagnosis.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

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
from iscsitrace.analysis.findings.case import Groups
from iscsitrace.analysis.findings.finding import Examined, Finding, Problem, in_order
from iscsitrace.analysis.session.columns import Columns
from iscsitrace.tables import memory

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

OF_CASES: Final = tuple(problem for family in FAMILIES for problem in family.PROBLEMS)
"""The problems that are looked for in each session and connection alone."""

OF_STORIES: Final = tuple(problem for family in STORY_FAMILIES for problem in family.PROBLEMS)

PROBLEMS: Final = {problem.name: problem for problem in (*OF_STORIES, *OF_CASES)}
"""Every problem by name, in the order of docs/diagnosis.md."""


_WEIGHED_AT_ONCE: Final = 4
"""Problems that are weighed before memory is given back."""
_PLACES: Final = {problem.name: place for place, problem in enumerate(OF_CASES)}


def possible(columns: Columns, problems: Sequence[Problem], groups: Groups | None = None) -> list[Sequence[Problem]]:
    """The problems that each session, or story, may have: those to look for, which are not weighed."""
    problems = [problem for problem in problems if not problem.is_weighed]
    which = np.array([problem.possible(columns, groups) for problem in problems], dtype=bool)
    # few combinations occur
    combinations, numbers = np.unique(np.packbits(which, axis=0), axis=1, return_inverse=True)
    rows = np.unpackbits(combinations, axis=0, count=len(problems)).T.tolist()
    found = [[problem for problem, is_possible in zip(problems, row, strict=True) if is_possible] for row in rows]
    return [found[number] for number in numbers.ravel().tolist()]


def weighed(columns: Columns, problems: Sequence[Problem], groups: Groups) -> dict[int, list[Finding]]:
    """The findings of each session, or connection, that are weighed for all together, not yet told."""
    found: dict[int, list[Finding]] = {}
    for place, problem in enumerate(problem for problem in problems if problem.is_weighed):
        for number, finding in problem.weighed(columns, groups):
            found.setdefault(number, []).append(finding)
        # the first one puts all commands in order
        if place % _WEIGHED_AT_ONCE == 0:
            memory.give_back(columns.table)
    return found


def findings_of(examined: Examined, problems: Sequence[Problem]) -> list[Finding]:
    """Which of these problems a session or connection has, or a story."""
    return [finding for problem in problems if (finding := problem.find(examined))]


def in_declared_order(found: Iterable[Finding]) -> list[Finding]:
    """The findings in the order of OF_CASES."""
    return sorted(found, key=lambda finding: _PLACES[finding.name])


def ordered(found: Sequence[Finding]) -> list[Finding]:
    """The findings in the order of a headline, without those that are consequences of others."""
    if len(found) < 2:
        return list(found)
    causes = [each for each in found if each.problem.accounts_for]
    return in_order(each for each in found if not any(each.is_explained_by(cause) for cause in causes))
