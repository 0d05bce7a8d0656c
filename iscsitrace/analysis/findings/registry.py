"""All known problems: the families, in the order of docs/diagnosis.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
from iscsitrace.analysis.findings.finding import Examined, Finding, Found, Problem, in_order
from iscsitrace.analysis.session.facts import Facts
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


_AT_ONCE: Final = 8
"""Problems that are looked for before memory is given back."""
_PLACES: Final = {problem.name: place for place, problem in enumerate(OF_CASES)}


def look(facts: Facts, problems: Sequence[Problem]) -> tuple[dict[int, list[Finding]], list[Sequence[Problem]]]:
    """What each session, connection or story has by its facts, not yet told; and what each may have, to look for."""
    found: dict[int, list[Finding]] = {}
    open_ones, which = [], []
    for place, problem in enumerate(problems):
        sought = problem.sought(facts)
        if isinstance(sought, Found):
            for number, finding in problem.findings(facts, sought):
                found.setdefault(number, []).append(finding)
        else:
            open_ones.append(problem)
            which.append(sought)
        if place % _AT_ONCE == 0:
            memory.give_back(facts.table)
    return found, _by_subject(open_ones, np.array(which, dtype=bool).reshape(len(which), len(facts)))


def _by_subject(problems: Sequence[Problem], which: NDArray[Any]) -> list[Sequence[Problem]]:
    """The problems of each subject; ``which`` has a row for each problem."""
    # few combinations occur
    combinations, numbers = np.unique(np.packbits(which, axis=0), axis=1, return_inverse=True)
    rows = np.unpackbits(combinations, axis=0, count=len(problems)).T.tolist()
    found = [[problem for problem, is_possible in zip(problems, row, strict=True) if is_possible] for row in rows]
    return [found[number] for number in numbers.ravel().tolist()]


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
