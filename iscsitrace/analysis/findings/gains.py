"""Gains: the throughput that the model predicts for each advice, relative to the throughput as measured.

A gain is a what-if: the model (docs/method.md, section 6) predicts the measured situation with one change. Where the
model does not describe the session, there are no gains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import log
from typing import Final

from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Advice, Basis, Finding, Gain
from iscsitrace.analysis.session import workload
from iscsitrace.analysis.session.measurement import Measured, measure
from iscsitrace.analysis.session.situation import Situation

MODEL: Final = 0.25
"""Largest relative error of the model against the measured throughput for gains to be shown. Beyond that, something
that the model does not know limits the session."""
MORE: Final = 1.02
"""Least improvement of a further step in the same direction over the step before it."""
LINE: Final = 0.02
"""Relative uncertainty of the estimated line rate."""


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

    def __call__(self, finding: Finding) -> tuple[Gain, ...]:
        return self._of.get(finding.name, ())

    @cached_property
    def _of(self) -> dict[str, tuple[Gain, ...]]:
        """The gains by name of the finding."""
        case = self._examined()
        asked = case.subject.workload
        if asked is None or asked.word == workload.MIXED:
            return {}
        measured = measure(case.subject)
        if measured is None or abs(log(measured.remainder)) > log(1 + MODEL):
            return {}
        readings = _readings(measured)
        return {each.name: tuple(_gains(Basis(case, measured, each), readings)) for each in self._findings}


def _gains(basis: Basis, readings: Sequence[Situation]) -> Iterator[Gain]:
    for advice in sorted(basis.finding.steps, key=lambda each: not each.is_tried_first):
        yield from _gains_of(advice, basis, readings)


def _gains_of(advice: Advice, basis: Basis, readings: Sequence[Situation]) -> Iterator[Gain]:
    before = 0.0
    for change in advice.what_if(basis) if advice.what_if else ():
        changed = [change.apply(reading) for reading in readings]
        factor = changed[0].throughput() / readings[0].throughput()
        if factor <= MORE * before:
            continue
        before = factor
        # a rough prediction shows the spread of the readings as well, and is fast
        rough = [
            after.throughput(is_rough=True) / reading.throughput(is_rough=True)
            for after, reading in zip(changed, readings, strict=True)
        ]
        gain = Gain(advice, change.words, factor, factor * min(rough) / rough[0], factor * max(rough) / rough[0])
        yield gain
        if gain.is_more:
            return


def _readings(measured: Measured) -> list[Situation]:
    """The measured situation, and others with the same throughput that the packets cannot tell from it.

    Time that the model misses can be a wait of each command or a stall of all. The target may serve commands in
    parallel, each in the same time, or one after another in proportion to their bytes. The line rate is known to LINE.
    """
    plain = measured.situation
    line = plain.setting.c_bytes_per_s
    found = [plain]
    setting = plain.setting
    tasks_bytes = setting.block_bytes * setting.queue_depth
    missed_ns_per_byte = 1e9 / measured.throughput_bytes_per_s - 1e9 / plain.throughput()
    if missed_ns_per_byte > 0:
        found += [
            replace(plain, waits_ns={**plain.waits_ns, "missed": missed_ns_per_byte * tasks_bytes}),
            replace(plain, stalls_ns_per_byte={**plain.stalls_ns_per_byte, "missed": missed_ns_per_byte}),
        ]
    elif missed_ns_per_byte < 0:
        found.append(plain.with_setting(delay_ns=plain.setting.delay_ns / measured.remainder))
    service_ns = plain.waits_ns.get("target_service", 0.0)
    if service_ns:
        stalls = {**plain.stalls_ns_per_byte, "target_service": service_ns / tasks_bytes}
        found.append(replace(plain.without("target_service"), stalls_ns_per_byte=stalls))
    if line:
        found += [plain.with_setting(c_bytes_per_s=line * factor) for factor in (1 - LINE, 1 + LINE)]
    return found
