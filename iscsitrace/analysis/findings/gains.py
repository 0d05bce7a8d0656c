"""What a change would win: each advice's throughput by the model, against the throughput as it is.

A gain is a what-if: the situation that was measured, with one thing changed, through the model (docs/method.md,
section 6). Where the model does not describe the session, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, log
from typing import Final

from iscsitrace.analysis.findings.finding import Finding, Gain
from iscsitrace.analysis.findings.thresholds import LARGE_BLOCK_BYTES, MODEL
from iscsitrace.analysis.session import system_calls, workload
from iscsitrace.analysis.session.situation import Measured, Situation, measure
from iscsitrace.analysis.session.subject import Subject
from iscsitrace.wording import amounts as wording

DEPTHS: Final = (8, 32, 128)
"""Queue depths to try, as programs and drivers have them: the next two."""
BLOCKS: Final = (LARGE_BLOCK_BYTES // 4, LARGE_BLOCK_BYTES)
MAX_BURST_BYTES: Final = 16_776_192
"""The largest that LIO takes, as its advice says."""
CONNECTIONS: Final = (2, 4, 8, 16, 32, 64)
"""How many times as many connections to try, as long as each step wins ENOUGH."""
ENOUGH: Final = 1.1
OUTSTANDING_R2TS: Final = 8
MORE: Final = 1.02
"""A further step in the same direction has to win so many times as much to be said."""
LINE: Final = 0.02
"""How far the line's pace may be off."""

_Changed = tuple[int, str, Situation]
"""The place of the advice that says so, the change in words, what it makes of the situation."""


def with_gains(subject: Subject, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each with the gains of its advice."""
    asked = subject.workload
    if asked is None or asked.word == workload.MIXED or not any(finding.name in _CHANGES for finding in findings):
        return list(findings)
    measured = measure(subject)
    if measured is None or abs(log(measured.remainder)) > log(1 + MODEL):
        return list(findings)
    readings = _readings(measured)
    return [
        replace(finding, gains=tuple(_gains(subject, measured, readings, finding)))
        if finding.name in _CHANGES
        else finding
        for finding in findings
    ]


def _gains(subject: Subject, measured: Measured, readings: Sequence[Situation], finding: Finding) -> Iterator[Gain]:
    make = _CHANGES[finding.name]
    by_reading = [list(make(subject, measured, reading, finding)) for reading in readings]
    before: dict[int, float] = {}
    for place, (advice, change, _) in enumerate(by_reading[0]):
        factor = by_reading[0][place][2].throughput() / readings[0].throughput()
        if factor <= MORE * before.get(advice, 0.0):
            continue
        before[advice] = factor
        # how much the readings differ is seen as well without following every task
        rough = [
            changes[place][2].throughput(is_rough=True) / reading.throughput(is_rough=True)
            for changes, reading in zip(by_reading, readings, strict=True)
        ]
        yield Gain(advice, change, factor, factor * min(rough) / rough[0], factor * max(rough) / rough[0])


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


def _queue_depths(measured: Measured, situation: Situation, advice: int, count: int = 2) -> Iterator[_Changed]:
    """The next queue depths; of a target that serves one task after another less is to be won."""
    for depth in [depth for depth in DEPTHS if depth > situation.setting.queue_depth][:count]:
        yield advice, f"queue depth {depth}", situation.with_setting(queue_depth=depth)


def _connections(measured: Measured, situation: Situation, advice: int) -> Iterator[_Changed]:
    """Twice as many connections, and as many as win something: each with one task at least."""
    plain = measured.situation
    now, before = plain.setting.connections, plain.throughput()
    numbers = []
    for times in CONNECTIONS:
        reached = plain.with_connections(times * now).throughput()
        if reached < ENOUGH * before:
            break
        numbers.append((times * now, reached))
        before = reached
    for number, reached in dict.fromkeys(numbers[:1] + numbers[-1:]):
        rate = wording.rate(measured.throughput_bytes_per_s * reached / plain.throughput())
        yield advice, f"{number} connections ({rate})", situation.with_connections(number)


def _of_queue_depth(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    yield from _queue_depths(measured, situation, 0)


def _of_block_size(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    call = system_calls.infer(subject.transfers)
    block = situation.setting.block_bytes
    if call and call.bytes > block:
        yield 1, f"blocks of {wording.size(call.bytes)}", situation.with_setting(block_bytes=call.bytes)
    for size in BLOCKS:
        if size >= 2 * block:
            yield 0, f"blocks of {wording.size(size)}", situation.with_setting(block_bytes=size)


def _of_ack_wait(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    free = situation.without("ack_wait")
    if situation.setting.is_status_held:
        yield 0, "status in the last Data-In", free.with_setting(is_status_held=False)
    else:
        yield 1, "nothing held back", free


def _of_rounds(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    yield 0, f"MaxBurstLength={MAX_BURST_BYTES}", situation.with_keys(max_burst_bytes=MAX_BURST_BYTES)
    outstanding = max(OUTSTANDING_R2TS, situation.setting.solicitation.max_outstanding_r2t)
    yield 1, f"MaxOutstandingR2T={outstanding}", situation.with_keys(max_outstanding_r2t=outstanding)
    yield from _queue_depths(measured, situation, 2, 1)


def _of_late_r2ts(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    late = (finding.share or 0.0) * subject.jobs_ns / max(1, measured.parts_ns["target_service"])
    yield 0, "R2Ts in time", situation.without("target_service", min(1.0, late))


def _of_unsolicited(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    freed = situation.with_keys(is_initial_r2t=False, is_immediate_data=True)
    yield 0, "ImmediateData=Yes and InitialR2T=No", freed
    solicitation = situation.setting.solicitation
    # of blocks of several sizes the one that carries most
    block = subject.workload.block_bytes if subject.workload else situation.setting.block_bytes
    if block > solicitation.first_burst_bytes:
        burst = max(block, solicitation.max_burst_bytes)
        larger = freed.with_keys(first_burst_bytes=block, max_burst_bytes=burst)
        yield 1, f"FirstBurstLength={block} beside that", larger


def _of_window(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    setting = situation.setting
    if setting.c_bytes_per_s is None or setting.window_bytes is None:
        return
    held = 2 * setting.c_bytes_per_s * 2 * setting.delay_ns / 1e9
    yield from _connections(measured, situation, 3)
    if held > setting.window_bytes:
        yield 0, f"a receive window of {wording.about(held)}", situation.with_setting(window_bytes=ceil(held))


def _of_restart(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    yield 0, "no slow start after a pause", situation.without("slow_start").with_setting(start_window_bytes=None)


def _of_loss(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    if situation.stalls_ns_per_byte.get("loss"):
        yield 0, "no losses", situation.without("loss").with_setting(loss=0.0)
        yield from _connections(measured, situation, _SHARED[finding.name])


def _of_target(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    yield 0, "a target that takes no time", situation.without("target_service")
    yield from _queue_depths(measured, situation, 1, 1)
    yield from _connections(measured, situation, 2)


def _of_think_time(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    yield 0, "no think time", situation.without("initiator_think")


def _of_initiator(subject: Subject, measured: Measured, situation: Situation, finding: Finding) -> Iterator[_Changed]:
    yield 0, "an initiator that answers at once", situation.without("initiator_service")


_SHARED: Final = {"congestion_window_small": 2, "loss": 3}
"""Which of their advice is to share the path."""
_CHANGES: Final[dict[str, Callable[[Subject, Measured, Situation, Finding], Iterator[_Changed]]]] = {
    "queue_depth_low": _of_queue_depth,
    "block_size_small": _of_block_size,
    "held_for_ack": _of_ack_wait,
    "r2t_rounds": _of_rounds,
    "r2t_late": _of_late_r2ts,
    "unsolicited_data_unused": _of_unsolicited,
    "receive_window_small": _of_window,
    "restart_after_idle": _of_restart,
    "congestion_window_small": _of_loss,
    "loss": _of_loss,
    "slow_target": _of_target,
    "initiator_think_time": _of_think_time,
    "slow_initiator": _of_initiator,
}
