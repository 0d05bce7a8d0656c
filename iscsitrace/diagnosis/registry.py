"""All known problems, as the files of `iscsitrace.findings` declare them; and where each is looked for."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace import findings
from iscsitrace.findings.finding import Examined, Finding, Found, Problem, Scope, in_order
from iscsitrace.measure.facts import Facts
from iscsitrace.tables import memory

FAMILIES: Final = tuple(
    import_module(f"{findings.__name__}.{each.name}") for each in pkgutil.iter_modules(findings.__path__)
)
"""The files, in order of their names."""

PROBLEMS: Final = {
    problem.name: problem for family in FAMILIES for problem in vars(family).values() if isinstance(problem, Problem)
}
"""Every problem by name."""


def of_scopes(*scopes: Scope) -> list[Problem]:
    """The problems that are looked for in these."""
    return [problem for problem in PROBLEMS.values() if problem.scope in scopes]


_AT_ONCE: Final = 8
"""Problems that are looked for before memory is given back."""


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
    """The findings in the order of PROBLEMS."""
    places = {name: place for place, name in enumerate(PROBLEMS)}
    return sorted(found, key=lambda finding: places[finding.name])


def ordered(found: Sequence[Finding]) -> list[Finding]:
    """The findings in the order of a headline, without those that are consequences of others."""
    if len(found) < 2:
        return list(found)
    causes = [each for each in found if each.problem.accounts_for]
    return in_order(each for each in found if not any(each.is_explained_by(cause) for cause in causes))
