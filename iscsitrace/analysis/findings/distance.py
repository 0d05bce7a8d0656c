"""Diseases of distance: what is outstanding does not fill the path."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import LARGE_BLOCK_BYTES, MIN_TASKS, SEQUENTIAL
from iscsitrace.analysis.findings.transport import line_bytes_per_s
from iscsitrace.analysis.measures.distribution import percentiles
from iscsitrace.analysis.session import system_calls
from iscsitrace.analysis.session.stretches import Stretches
from iscsitrace.analysis.session.subject import Subject
from iscsitrace.analysis.session.workload import Workload
from iscsitrace.wording import amounts as wording


def find(subject: Subject) -> Iterator[Finding]:
    """queue_depth_low and block_size_small."""
    asked = subject.workload
    path_ns = subject.path_ns
    if asked is None or asked.task_count < MIN_TASKS or path_ns is None:
        return
    waits = _of_data(subject, subject.stretches("propagation"))
    if not subject.is_worth(waits.total_ns):
        return
    worst = subject.longest_rows(waits)
    yield subject.finding(
        "queue_depth_low",
        waits.total_ns,
        f"{asked.phrase} over a path of {wording.time(path_ns)} there and back",
        subject.frames_of(worst),
    )
    passing_ns = _passing_ns(subject, asked)
    share = system_calls.sequential_share(subject.transfers)
    if passing_ns >= path_ns or asked.block_bytes >= LARGE_BLOCK_BYTES or share < SEQUENTIAL:
        return
    call = system_calls.infer(subject.transfers)
    shown = list(call.rows[:3]) if call else _one_after_another(subject)
    text = (
        f"what is outstanding passes in {wording.time(passing_ns)}, the path takes {wording.time(path_ns)}: blocks of "
        f"{wording.size(asked.block_bytes)} are small for it, and {wording.percent(share)} of them follow one another"
    )
    yield subject.finding(
        "block_size_small",
        waits.total_ns,
        text + (f"; {_of_call(call)}" if call else ""),
        subject.frames_of(subject.rows_of(subject.transfers.raw("cycle")[shown])),
    )


def _of_data(subject: Subject, stretches: Stretches) -> Stretches:
    """Waits for reads and writes."""
    waits = subject.with_next(stretches)
    return waits.where(subject.is_of(waits, subject.is_transfer))


def _passing_ns(subject: Subject, asked: Workload) -> float:
    """How long what is outstanding takes on the line; by the pace of tasks, where that of the line is not known."""
    rate = line_bytes_per_s(subject)
    if rate:
        return asked.block_bytes * asked.queue_depth * 1e9 / rate
    return (percentiles(subject.transfers["transfer_ns"])["p50"] or 0) * asked.queue_depth


def _one_after_another(subject: Subject) -> list[int]:
    """Places in ``transfers`` of three tasks, each of which begins where the one before it ended."""
    cycles = subject.transfers
    continued = system_calls.is_continued(cycles)
    runs = np.flatnonzero(continued[1:-1] & continued[2:])
    first = int(runs[0]) if len(runs) else 0
    return list(range(first, min(first + 3, len(cycles))))


def _of_call(call: system_calls.SystemCall) -> str:
    pieces = " + ".join(wording.size(piece) for piece in call.pieces[:6])
    more = " + ..." if len(call.pieces) > 6 else ""
    together = "sent at once" if call.is_at_once else "sent one after another"
    return (
        f"they are pieces of system calls of {wording.size(call.bytes)}, each cut into {len(call.pieces)} "
        f"({pieces}{more}), {together}"
    )
