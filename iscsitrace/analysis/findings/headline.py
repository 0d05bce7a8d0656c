"""The headline: what limits a session or a connection, in one sentence, and what has to be said beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from iscsitrace.analysis.findings import capture
from iscsitrace.analysis.findings.case import is_worth
from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import WARNING
from iscsitrace.analysis.findings.transport import line_bytes_per_s
from iscsitrace.analysis.session.subject import WAITS, Subject
from iscsitrace.analysis.session.workload import MIN_TASKS
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


@dataclass(frozen=True)
class Headline:
    """What a person reads first."""

    sentence: str
    """What limits it, and why."""
    notes: tuple[str, ...] = ()
    """Sentences on what else takes much of the time, which pauses are left out, and how few tasks there are."""

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join((self.sentence, *self.notes))


def of(subject: Subject, findings: Sequence[Finding]) -> Headline:
    """The headline; it says so where nothing can be said."""
    name = subject.label.capitalize()
    if subject.budget is None or not subject.jobs_ns:
        what = "has no task with a status" if len(subject.cycles) else "carried no SCSI task"
        return Headline(f"{name} {what}: there is no time to account for.")
    if capture.forbids_verdict(subject):
        return Headline(
            f"{name}: the capture is too poor to say what limits it: {'; '.join(capture.reasons(subject))}."
        )
    limiter = subject.budget.limiter
    if limiter is None or subject.budget.is_line_bound:
        sentence, beside = _transfers(name, subject), _beside(subject, findings)
    else:
        sentence, beside = _waits(name, subject, limiter, findings), ""
    return Headline(sentence, tuple(note for note in (beside, _pauses(subject), _caveat(subject)) if note))


def _transfers(name: str, subject: Subject) -> str:
    """The line limits more than all waits together."""
    line = line_bytes_per_s(subject)
    pace = f" at {wording.rate(line)}" if line else ""
    share = wording.percent(subject.share(subject.part_ns("transfer")))
    return f"{name} transfers data {share} of its time: the line{pace} is what limits it."


def _beside(subject: Subject, findings: Sequence[Finding]) -> str:
    """The largest wait beside transfers, if it is worth it."""
    most = max(WAITS, key=subject.part_ns)
    if not is_worth(subject, subject.part_ns(most), WARNING):
        return ""
    return f"Beside that {_waits('it', subject, most, findings)}"


def _waits(name: str, subject: Subject, part: str, findings: Sequence[Finding]) -> str:
    share = wording.percent(subject.share(subject.part_ns(part)))
    how_far = ""
    if part == "propagation" and subject.path_ns is not None:
        how_far = f" ({wording.time(subject.path_ns / 2)} one way)"
    cause = _cause(subject, part, findings)
    return f"{name} waits {share} of its time for {_WAITS_FOR[part]}{how_far}{f': {cause}' if cause else ''}."


def _cause(subject: Subject, part: str, findings: Sequence[Finding]) -> str | None:
    """Why a part is large: the most specific finding among those that weigh alike."""
    causes = [
        (finding.problem.explains.specificity, finding.share or 0.0, finding.cause)
        for finding in findings
        if finding.problem.explains and finding.problem.explains.part == part
    ]
    most = max((share for _, share, _ in causes), default=0.0)
    own = subject.share(subject.part_ns(part))
    for _, share, cause in sorted(causes, key=lambda each: -each[0]):
        # half of the weightiest, and a third of the part
        if share >= max(most / 2, own / 3, 1e-9):
            return cause
    waits = subject.with_next(subject.stretches(part))
    others = waits.where(subject.is_of(waits, ~subject.is_transfer))
    if 2 * others.total_ns > waits.total_ns:
        return f"mostly with {wording.count(int((~subject.is_transfer).sum()), 'task')} that neither read nor wrote"
    return None


def _pauses(subject: Subject) -> str:
    between_ns = subject.budget.between_jobs_ns if subject.budget else 0
    return f"Pauses between jobs, {wording.time(between_ns)} in all, are left out." if between_ns else ""


def _caveat(subject: Subject) -> str:
    asked = subject.workload
    if asked is None or asked.task_count < MIN_TASKS:
        return f"Only {wording.count(asked.task_count if asked else 0, 'task')} moved data: that may be chance."
    return ""
