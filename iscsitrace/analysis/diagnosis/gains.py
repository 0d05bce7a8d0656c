"""Gains: the throughput that the model predicts for each advice, relative to the throughput as measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import AdviceGain, Basis, Finding
from iscsitrace.analysis.session.gain import WhatIf, of_session


def with_gains(examined: Callable[[], Case], findings: Sequence[Finding]) -> list[Finding]:
    """Add to each finding the gains of its advice. They are computed when they are first used: only those of findings
    that are shown. ``examined`` makes the case that has the findings.
    """
    predicted = _Predicted(examined, findings)
    return [
        replace(finding, predict=predicted) if any(advice.what_if for advice in finding.steps) else finding
        for finding in findings
    ]


class _Predicted:
    """The gains of all findings of a session, computed together when the first is used."""

    def __init__(self, examined: Callable[[], Case], findings: Sequence[Finding]) -> None:
        self._examined = examined
        self._findings = findings

    def __call__(self, finding: Finding) -> tuple[AdviceGain, ...]:
        return self._of.get(finding.name, ())

    @cached_property
    def _of(self) -> dict[str, tuple[AdviceGain, ...]]:
        """The gains by name of the finding."""
        case = self._examined()
        what_if = of_session(case.subject)
        if what_if is None:
            return {}
        return {each.name: tuple(_gains(Basis(case, what_if.measured, each), what_if)) for each in self._findings}


def _gains(basis: Basis, what_if: WhatIf) -> Iterator[AdviceGain]:
    for advice in sorted(basis.finding.steps, key=lambda each: not each.is_tried_first):
        for gain in what_if.gains(advice.what_if(basis)) if advice.what_if else ():
            yield AdviceGain(**vars(gain), advice=advice)
