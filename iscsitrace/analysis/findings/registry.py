"""All known problems: the families, in the order of docs/diagnosis.md."""

from __future__ import annotations

from typing import Final

from iscsitrace.analysis.findings import (
    acknowledgments,
    capture,
    command_window,
    distance,
    failures,
    hosts,
    line,
    mirrored,
    parallel,
    transport,
    writes,
)
from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Finding, Problem, by_weight

FAMILIES: Final = (
    distance,
    acknowledgments,
    writes,
    transport,
    line,
    parallel,
    mirrored,
    hosts,
    command_window,
    failures,
    capture,
)

PROBLEMS: Final[dict[str, Problem]] = {problem.name: problem for family in FAMILIES for problem in family.PROBLEMS}
"""Every problem by name, in the order of docs/diagnosis.md."""


def findings_of(case: Case) -> list[Finding]:
    """The findings of a session or connection: failures first, then by share, then in the order of the docs."""
    found = [finding for problem in PROBLEMS.values() if (finding := problem.find(case))]
    return by_weight([each for each in found if not any(each.is_explained_by(other) for other in found)])
