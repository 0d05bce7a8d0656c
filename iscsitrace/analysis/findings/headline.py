"""The headline: what limits a session or a connection and why, and notes on what the sentence leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iscsitrace.analysis.findings import capture
from iscsitrace.analysis.findings.case import is_worth
from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import WARNING
from iscsitrace.analysis.session import line
from iscsitrace.analysis.session.session import WAITS, Session
from iscsitrace.analysis.session.workload import MIN_TASKS
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.parts import BY_NAME
from iscsitrace.wording.sentences import capital


@dataclass(frozen=True)
class Headline:
    """The sentences that a person reads first."""

    sentence: str
    """What limits it, and the cause."""
    notes: tuple[str, ...] = ()
    """Another large part of the time, excluded idle gaps, and whether the commands are too few."""

    @property
    def text(self) -> str:
        """The sentence with its notes."""
        return " ".join((self.sentence, *self.notes))


def of(subject: Session, findings: Sequence[Finding]) -> Headline:
    """The headline of a subject with these findings; it is also one where the limiter is unknown."""
    name = capital(subject.label)
    if subject.budget is None or not subject.jobs_ns:
        what = "has no command with a status" if len(subject.cycles) else "carried no SCSI commands"
        return Headline(f"{name} {what}: there is no time to break down.")
    if capture.forbids_verdict(subject):
        missing = "; ".join(capture.reasons(subject))
        return Headline(f"{name}: limiter unknown, the capture is too poor: {missing}.")
    limiter = subject.budget.limiter
    if limiter is None or subject.budget.is_line_bound:
        sentence, also = _line_bound(name, subject, findings), _also(subject, findings)
    else:
        sentence, also = _limited(f"{name} is", subject, limiter, findings), ""
    return Headline(sentence, tuple(note for note in (also, _excluded(subject), _caveat(subject)) if note))


def _line_bound(name: str, subject: Session, findings: Sequence[Finding]) -> str:
    """Data transfer takes more time than all waits together."""
    share = wording.percent(subject.share(subject.part_ns("transfer")))
    start = f"{name} is line-bound: {share} of the time is data transfer"
    if cause := _cause(subject, "transfer", findings):
        return f"{start}. {cause}"
    found = line.of(subject)
    return f"{start} (line rate {wording.rate(found.bytes_per_s)})." if found else f"{start}."


def _also(subject: Session, findings: Sequence[Finding]) -> str:
    """The largest wait beside data transfer, if it is above the threshold of a warning."""
    most = max(WAITS, key=subject.part_ns)
    if not is_worth(subject, subject.part_ns(most), WARNING):
        return ""
    return _limited("It is also", subject, most, findings)


def _limited(start: str, subject: Session, part: str, findings: Sequence[Finding]) -> str:
    share = wording.percent(subject.share(subject.part_ns(part)))
    words = BY_NAME[part]
    rtt = f" ({wording.time(subject.path_ns)})" if part == "propagation" and subject.path_ns is not None else ""
    cause = _cause(subject, part, findings)
    return f"{start} {words.limited}: {share} of the time is {words.spent}{rtt}.{f' {cause}' if cause else ''}"


def _cause(subject: Session, part: str, findings: Sequence[Finding]) -> str:
    """The sentence of the most specific finding among those of similar cost; empty where the cause is unknown."""
    causes = [
        (finding.problem.explains.specificity, finding.share or 0.0, finding.cause)
        for finding in findings
        if finding.problem.explains and finding.problem.explains.part == part
    ]
    most = max((share for _, share, _ in causes), default=0.0)
    own = subject.share(subject.part_ns(part))
    for _, share, cause in sorted(causes, key=lambda each: each[0], reverse=True):
        # at least half of the largest share, and a third of the part
        if share >= max(most / 2, own / 3):
            return cause
    waits = subject.with_next(subject.stretches(part))
    others = waits.where(subject.is_of(waits, ~subject.is_transfer))
    if 2 * others.total_ns > waits.total_ns:
        count = wording.count(int((~subject.is_transfer).sum()), "non-I/O command")
        return f"Most of it is {count} (INQUIRY, TEST UNIT READY, ...)."
    return ""


def _excluded(subject: Session) -> str:
    gaps_ns = subject.budget.between_jobs_ns if subject.budget else 0
    return f"Idle gaps between bursts of I/O ({wording.time(gaps_ns)} in all) are excluded." if gaps_ns else ""


def _caveat(subject: Session) -> str:
    asked = subject.workload
    if asked is None or asked.task_count < MIN_TASKS:
        return f"Only {wording.count(asked.task_count if asked else 0, 'command')} moved data: too few to be sure."
    return ""
