"""The disease of waiting for ACKs: a status, or data, that TCP holds back until what went before it is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import MIN_TASKS
from iscsitrace.analysis.session.subject import Subject, frames_in
from iscsitrace.wording import amounts as wording


def find(subject: Subject) -> Iterator[Finding]:
    """held_for_ack."""
    waits = subject.stretches("ack_wait")
    by_cycle = subject.waits_by_cycle(waits)
    count = int((by_cycle > 0).sum())
    if count < MIN_TASKS or not subject.is_worth(waits.total_ns):
        return
    median = f"half of them over {wording.time(float(np.median(by_cycle[by_cycle > 0])))}"
    cycles = subject.cycles
    has_status_apart = cycles.raw("is_read") & ~cycles.raw("is_status_in_data") & (cycles.raw("data_bytes") > 0)
    if 2 * int(by_cycle[has_status_apart].sum()) > waits.total_ns:
        held = int((by_cycle[has_status_apart] > 0).sum())
        text = f"the status of {wording.count(held, 'read')} waited for the ACK of the data before it, {median}"
        frames = frames_in(cycles, subject.longest_rows(waits), "data_last_frame", "status_frame")
    else:
        text = f"{wording.count(count, 'task')} had data or a command held back until an ACK came, {median}"
        frames = subject.evidence(waits)
    yield subject.finding("held_for_ack", waits.total_ns, text, frames)
