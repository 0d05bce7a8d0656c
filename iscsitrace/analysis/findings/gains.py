"""What a change would win: each advice's throughput by the model, against the throughput as it is.

A gain is a what-if: the situation that was measured, with one thing changed, through the model (docs/method.md,
section 6). Where the model does not describe the session, there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log
from typing import Final

from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Advice, Basis, Finding, Gain
from iscsitrace.analysis.session import workload
from iscsitrace.analysis.session.measurement import Measured, measure
from iscsitrace.analysis.session.situation import Situation

MODEL: Final = 0.25
"""How far the model may be from the throughput as measured for it to say what a change would win: beyond that
something else decides."""
MORE: Final = 1.02
"""A further step in the same direction has to win so many times as much to be said."""
LINE: Final = 0.02
"""How far the line's pace may be off."""


def with_gains(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each with the gains of its advice."""
    asked = case.subject.workload
    has_what_if = any(advice.what_if for finding in findings for advice in finding.problem.advice)
    if asked is None or asked.word == workload.MIXED or not has_what_if:
        return list(findings)
    measured = measure(case.subject)
    if measured is None or abs(log(measured.remainder)) > log(1 + MODEL):
        return list(findings)
    readings = _readings(measured)
    return [replace(finding, gains=tuple(_gains(Basis(case, measured, finding), readings))) for finding in findings]


def _gains(basis: Basis, readings: Sequence[Situation]) -> Iterator[Gain]:
    for advice in sorted(basis.finding.problem.advice, key=lambda each: not each.is_tried_first):
        yield from _gains_of(advice, basis, readings)


def _gains_of(advice: Advice, basis: Basis, readings: Sequence[Situation]) -> Iterator[Gain]:
    before = 0.0
    for change in advice.what_if(basis) if advice.what_if else ():
        changed = [change.apply(reading) for reading in readings]
        factor = changed[0].throughput() / readings[0].throughput()
        if factor <= MORE * before:
            continue
        before = factor
        # how much the readings differ is seen as well without following every task
        rough = [
            after.throughput(is_rough=True) / reading.throughput(is_rough=True)
            for after, reading in zip(changed, readings, strict=True)
        ]
        yield Gain(advice, change.words, factor, factor * min(rough) / rough[0], factor * max(rough) / rough[0])


def _readings(measured: Measured) -> list[Situation]:
    """The situation, and other ones that come to the same throughput: what the packets leave open.

    What the model misses can be a wait of each task, or a stall of all; the target may serve tasks side by side and in
    the same time whatever their size, or one after another and byte by byte; the pace of the line is known to LINE.
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
