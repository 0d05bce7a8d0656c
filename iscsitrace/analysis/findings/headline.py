"""The headline: what limits the reads and writes of a session or a connection and why, and notes on what the sentence
leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from iscsitrace.analysis.findings import capture
from iscsitrace.analysis.findings.case import is_worth
from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import WARNING
from iscsitrace.analysis.measures.busy import THINK_MAX_NS
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.session import line
from iscsitrace.analysis.session.session import WAITS, Session
from iscsitrace.analysis.session.workload import MIN_TASKS
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.parts import BY_NAME
from iscsitrace.wording.sentences import capital

_SCANNING: Final = {"inquiry", "report_luns"}
"""Operations with which an initiator looks for logical units."""
_NAMED: Final = 2
"""Operations named in a note."""


@dataclass(frozen=True)
class Headline:
    """The sentences that a person reads first."""

    sentence: str
    """What limits it, and the cause."""
    notes: tuple[str, ...] = ()
    """Another large part of the time, the time that is no busy time, and whether the commands are too few."""

    @property
    def text(self) -> str:
        """The sentence with its notes."""
        return " ".join((self.sentence, *self.notes))


def of(subject: Session, findings: Sequence[Finding]) -> Headline:
    """The headline of a subject with these findings; it is also one where the limiter is unknown."""
    name = capital(subject.label)
    if subject.budget is None or not subject.jobs_ns:
        return Headline(_nothing(name, subject))
    if capture.forbids_verdict(subject):
        missing = "; ".join(capture.reasons(subject))
        return Headline(f"{name}: limiter unknown, the capture is too poor: {missing}.")
    limiter = subject.budget.limiter
    if limiter is None or limiter == "transfer":
        sentence, also = _line_bound(name, subject, findings), _also(subject, findings)
    else:
        sentence, also = _limited(f"{name} is", subject, limiter, findings), ""
    notes = (also, _base(subject), _scan(subject), _flushes(subject), _caveat(subject))
    return Headline(sentence, tuple(note for note in notes if note))


def _nothing(name: str, subject: Session) -> str:
    """No busy time: nothing was read or written, or no time of it was seen."""
    if not len(subject.cycles):
        return f"{name} carried no SCSI commands: there is no time to break down."
    data = int(subject.is_data.sum())
    if not data:
        counts, flushes = _others(subject), int(subject.is_flush.sum())
        of = "of a device scan" if counts.keys() & _SCANNING else "that move no data"
        commands = f"{wording.count(counts.total(), 'command')} {of} ({_listed(counts)})" if counts else ""
        found = " and ".join(filter(None, (commands, f"{flushes} SYNCHRONIZE CACHE" if flushes else "")))
        return f"Nothing was read or written in {subject.label}: {found}."
    if not (subject.is_data & known(subject.cycles, "status_ns")).any():
        none = "has no status" if data == 1 else "have no status"
        return f"{name}: its {wording.count(data, 'read or write', 'reads and writes')} {none}: no time to break down."
    return f"{name}: its reads and writes took no time by the capture's clock."


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
    return ""


def _base(subject: Session) -> str:
    """The busy time, where other time is not part of it."""
    idle_ns = _excluded_ns(subject, "idle")
    if not idle_ns:
        return ""
    return (
        f"Shares are of {wording.time(subject.jobs_ns)} of busy time; no command was in flight for another "
        f"{wording.time(idle_ns)}."
    )


def _scan(subject: Session) -> str:
    """Time of the device scan, or of other non-I/O commands, apart from reads and writes."""
    scan_ns = _excluded_ns(subject, "scan")
    if not scan_ns:
        return ""
    counts = _others(subject)
    what = "The device scan" if counts.keys() & _SCANNING else "Other work"
    count = wording.count(counts.total(), "non-I/O command")
    return f"{what} took {wording.time(scan_ns)}: {count} ({_listed(counts)})."


def _flushes(subject: Session) -> str:
    """Time of SYNCHRONIZE CACHE apart from reads and writes."""
    flush_ns = _excluded_ns(subject, "flush")
    return f"SYNCHRONIZE CACHE took {wording.time(flush_ns)} apart from that." if flush_ns else ""


def _excluded_ns(subject: Session, use: str) -> int:
    """Time that is no busy time, where it is worth a note."""
    amount_ns = subject.budget.uses_ns[use] if subject.budget else 0
    return amount_ns if amount_ns >= THINK_MAX_NS or is_worth(subject, amount_ns) else 0


def _others(subject: Session) -> Counter[str]:
    """The non-I/O commands by operation."""
    return Counter(str(name) for name in subject.cycles["operation"][~subject.is_data & ~subject.is_flush].tolist())


def _listed(counts: Counter[str]) -> str:
    """``INQUIRY, MODE SENSE, ...``: the most frequent operations."""
    names = [name.replace("_", " ").upper() for name, _ in counts.most_common()]
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _caveat(subject: Session) -> str:
    asked = subject.workload
    # UNMAP and the like are a workload too
    count = (asked.task_count if asked else 0) + int((subject.is_data & ~subject.is_transfer).sum())
    return f"Only {wording.count(count, 'command')} moved data: too few to be sure." if count < MIN_TASKS else ""
