"""The verdict: what limits a session or a connection, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from iscsitrace.analysis.findings import capture
from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import MIN_TASKS, WARNING
from iscsitrace.analysis.findings.transport import line_bytes_per_s
from iscsitrace.analysis.session.subject import WAITS, Subject
from iscsitrace.wording import amounts as wording

_WAITS_FOR: Final = {
    "propagation": "the path",
    "target_service": "the target",
    "initiator_think": "the initiator to ask for something",
    "initiator_service": "the initiator to send what the target asked for",
    "ack_wait": "an ACK, to let go what is held back",
    "receive_window": "room in the receiver's window",
    "congestion_window": "TCP's congestion window to let data go",
    "loss_recovery": "lost packets to be sent again",
    "unknown": "something that the capture does not show",
}
_CAUSES: Final = {
    "propagation": ("r2t_rounds", "unsolicited_data_unused", "queue_depth_low"),
    "target_service": ("r2t_late", "slow_target"),
    "initiator_think": ("mirror_waits_for_farthest", "initiator_think_time"),
    "initiator_service": ("slow_initiator",),
    "ack_wait": ("held_for_ack",),
    "receive_window": ("receive_window_small", "receiver_stalled"),
    "congestion_window": ("restart_after_idle", "congestion_window_small"),
    "loss_recovery": ("loss",),
    "unknown": (),
}
"""Findings that say why a part is large, the most special first."""


def say(subject: Subject, findings: Sequence[Finding]) -> str:
    """The sentence; it says so where nothing can be said."""
    name = subject.label.capitalize()
    if subject.budget is None or not subject.jobs_ns:
        what = "has no task with a status" if len(subject.cycles) else "carried no SCSI task"
        return f"{name} {what}: there is no time to account for."
    if capture.forbids_verdict(subject):
        return f"{name}: the capture is too poor to say what limits it: {'; '.join(capture.reasons(subject))}."
    limiter = subject.budget.limiter
    if limiter is None or subject.budget.is_line_bound:
        sentence = _transfers(name, subject, findings)
    else:
        sentence = _waits(name, subject, limiter, findings)
    return sentence + _pauses(subject) + _caveat(subject)


def _transfers(name: str, subject: Subject, findings: Sequence[Finding]) -> str:
    """The line limits more than all waits together; the largest of these is said, if it is worth it."""
    line = line_bytes_per_s(subject)
    pace = f" at {wording.rate(line)}" if line else ""
    share = wording.percent(subject.share(subject.part_ns("transfer")))
    most = max(WAITS, key=subject.part_ns)
    sentence = f"{name} transfers data {share} of its time: the line{pace} is what limits it."
    if not subject.is_worth(subject.part_ns(most), WARNING):
        return sentence
    return f"{sentence} Beside that {_waits('it', subject, most, findings)}"


def _waits(name: str, subject: Subject, part: str, findings: Sequence[Finding]) -> str:
    share = wording.percent(subject.share(subject.part_ns(part)))
    how_far = ""
    if part == "propagation" and subject.path_ns is not None:
        how_far = f" ({wording.time(subject.path_ns / 2)} one way)"
    cause = _cause(subject, part, findings)
    return f"{name} waits {share} of its time for {_WAITS_FOR[part]}{how_far}{f': {cause}' if cause else ''}."


def _cause(subject: Subject, part: str, findings: Sequence[Finding]) -> str | None:
    """Why a part is large: the most special finding among those that weigh alike."""
    shares = {finding.name: finding.share or 0.0 for finding in findings if finding.name in _CAUSES[part]}
    most = max(shares.values(), default=0.0)
    own = subject.share(subject.part_ns(part))
    for finding in sorted(findings, key=lambda each: (*_CAUSES[part], each.name).index(each.name)):
        # half of the weightiest, and a third of the part
        if shares.get(finding.name, 0.0) >= max(most / 2, own / 3, 1e-9):
            asked = subject.workload if finding.name == "queue_depth_low" else None
            if finding.name == "mirror_waits_for_farthest":
                # the figures stand in the finding
                return finding.text.partition(": ")[0]
            return asked.phrase if asked else finding.text
    waits = subject.with_next(subject.stretches(part))
    others = waits.where(subject.is_of(waits, ~subject.is_transfer))
    if 2 * others.total_ns > waits.total_ns:
        return f"mostly with {wording.count(int((~subject.is_transfer).sum()), 'task')} that neither read nor wrote"
    return None


def _pauses(subject: Subject) -> str:
    between_ns = subject.budget.between_jobs_ns if subject.budget else 0
    return f" Pauses between jobs, {wording.time(between_ns)} in all, are left out." if between_ns else ""


def _caveat(subject: Subject) -> str:
    asked = subject.workload
    if asked is None or asked.task_count < MIN_TASKS:
        return f" Only {wording.count(asked.task_count if asked else 0, 'task')} moved data: that may be chance."
    return ""
