"""Diseases of waiting for ACKs: a status, or data, that TCP holds back until what went before it is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iscsitrace.analysis.diagnosis import wording
from iscsitrace.analysis.diagnosis.finding import Finding
from iscsitrace.analysis.diagnosis.subject import Subject, frames_in
from iscsitrace.analysis.diagnosis.thresholds import MIN_TASKS


def find(subject: Subject) -> Iterator[Finding]:
    """status_waits_for_ack and data_waits_for_ack."""
    waits = subject.stretches("ack_wait")
    if not len(waits.lengths) or not len(subject.cycles):
        return
    cycles = subject.cycles
    has_status_apart = cycles.raw("is_read") & ~cycles.raw("is_status_in_data") & (cycles.raw("data_bytes") > 0)
    of_status = subject.is_of(waits, has_status_apart)
    for name, chosen in (("status_waits_for_ack", of_status), ("data_waits_for_ack", ~of_status)):
        held = waits.where(chosen)
        by_cycle = subject.waits_by_cycle(held)
        count = int((by_cycle > 0).sum())
        if count < MIN_TASKS or not subject.is_worth(held.total_ns):
            continue
        median = f"half of them over {wording.time(float(np.median(by_cycle[by_cycle > 0])))}"
        if name == "status_waits_for_ack":
            rows = subject.longest_rows(held)
            frames = frames_in(cycles, rows, "data_last_frame", "status_frame")
            text = f"the status of {wording.count(count, 'read')} waited for the ACK of the data before it, {median}"
        else:
            frames = subject.evidence(held)
            text = f"{wording.count(count, 'task')} had data or a command held back until an ACK came, {median}"
        yield subject.finding(name, held.total_ns, text, frames)
