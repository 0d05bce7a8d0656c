"""The headline: what broke, or what limits the reads and writes and why; and notes on what the sentence leaves out.

What broke comes before what is slow. A healthy session has one, too: what limits it, and that no problem was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings import capture
from iscsitrace.findings.case import Case, is_worth
from iscsitrace.findings.finding import Finding
from iscsitrace.findings.idle_sessions import is_scan, nothing_done, operations_in_words, other_operations
from iscsitrace.findings.thresholds import WARNING
from iscsitrace.measure import line
from iscsitrace.measure.budget import Budget
from iscsitrace.measure.busy import THINK_MAX_NS
from iscsitrace.measure.data_commands import is_data_command, is_transfer, is_whole_transfer
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.intervals import Span
from iscsitrace.measure.session import WAITS, Session
from iscsitrace.measure.workload import MIN_TASKS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.parts import BY_NAME
from iscsitrace.wording.sentences import capital

NONE: Final = "none"
"""The name of the headline of a healthy session."""

TOO_SHORT: Final = "too_short"
"""The name of the headline where too few commands moved data to be sure of anything."""


@dataclass(frozen=True)
class Headline:
    """The sentences that a person reads first."""

    sentence: str
    """What broke, or what limits it, and the cause."""
    notes: tuple[str, ...] = ()
    """Another large part of the time, the time that is no busy time, and whether the commands are too few."""
    name: str = NONE
    """The finding's name; none where there is no problem, too_short where nothing can be said."""
    severity: str = "info"
    sessions: tuple[int, ...] = ()
    luns: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()
    cost_ns: float | None = None
    """The time that it costs; None where this is unknown."""

    @property
    def text(self) -> str:
        """The sentence with its notes."""
        return " ".join((self.sentence, *self.notes))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "severity": self.severity,
            "sessions": list(self.sessions),
            "luns": list(self.luns),
            "from_ns": min((first for first, _ in self.spans), default=None),
            "to_ns": max((last for _, last in self.spans), default=None),
            "cost_ns": None if self.cost_ns is None else round(self.cost_ns),
            "text": self.text,
        }


@dataclass(frozen=True)
class Verdict:
    """What a headline says of one session, connection or story, without its sentences."""

    number: int
    """Of the session or connection; of a story its place."""
    name: str
    """As in :class:`Headline`."""
    severity: str
    cost_ns: float | None
    limiter: str | None
    """See :attr:`Budget.limiter`."""
    jobs_ns: int
    """Busy time."""
    is_failure: bool = False
    """Whether something broke that a person has to read first."""
    spans: tuple[Span, ...] = ()
    """When it broke; empty for what is slow."""
    luns: tuple[int, ...] = ()
    """The logical units that it hit; empty for what is slow."""

    @property
    def weight(self) -> tuple[int, float, float]:
        """How bad it is, beside other sessions: severity of the headline, time lost, busy time."""
        return weight(self, self.jobs_ns)


def verdict(number: int, time: Budget | None, findings: Sequence[Finding], facts: Facts) -> Verdict:
    """The verdict on a session or connection with these findings, in their order: see `choose`."""
    lead, kind = choose(number, time, findings, facts)
    rest = (time.limiter, time.jobs_ns) if time else (None, 0)
    return verdict_of(lead, number, *rest) if lead else Verdict(number, kind, "info", None, *rest)


def verdict_of(lead: Finding, number: int, limiter: str | None, jobs_ns: int) -> Verdict:
    """The verdict where this finding leads."""
    verdict = Verdict(number, lead.name, lead.severity, lead.cost_ns, limiter, jobs_ns)
    return replace(verdict, is_failure=True, spans=lead.spans, luns=lead.luns) if is_failure(lead) else verdict


def of_finding(finding: Finding, sentence: str | None = None, notes: tuple[str, ...] = ()) -> Headline:
    """The headline of a finding, in its words unless others are given."""
    return Headline(
        sentence or finding.cause,
        notes,
        finding.name,
        finding.severity,
        finding.sessions,
        finding.luns,
        finding.spans,
        finding.cost_ns,
    )


def of(case: Case, findings: Sequence[Finding]) -> Headline:
    """The headline of a session or connection with these findings, in their order."""
    subject = case.subject
    name = capital(subject.label)
    lead, kind = choose(subject.place, subject.budget, findings, subject.facts)
    if lead and kind == POOR:
        return of_finding(lead, f"{name}: limiter unknown, the capture is too poor: {capture.reasons(subject)}.")
    if lead and kind == TOLD:
        return of_finding(lead)
    if subject.budget is None or not subject.jobs_ns:
        return Headline(_nothing(name, subject), (), NONE, "info", case.sessions, case.luns, case.spans)
    limiter = subject.budget.limiter
    if limiter is None or limiter == "transfer":
        sentence, also = _line_bound(name, subject, findings), _also(subject, findings)
    else:
        sentence, also = _limited(f"{name} is", subject, limiter, findings), ""
    caveat = _caveat(subject)
    notes = tuple(note for note in (also, _base(subject), _scan(subject), _flushes(subject), caveat) if note)
    if lead and kind == CAUSE:
        return of_finding(lead, sentence, notes)
    if lead:
        return of_finding(lead, lead.cause, (sentence, *notes))
    if kind == TOO_SHORT:
        return Headline(sentence, notes, TOO_SHORT, "info", case.sessions, case.luns, case.spans)
    healthy = f"No problem found. {sentence}"
    return Headline(healthy, notes, NONE, "info", case.sessions, case.luns, case.spans)


POOR: Final = "poor"
TOLD: Final = "told"
CAUSE: Final = "cause"
BESIDE: Final = "beside"
"""How a finding leads: the capture forbids a verdict; it says all itself; it is the cause of the limiter, which is
named first; or it explains no part of the time, and the limiter follows it."""


def choose(number: int, time: Budget | None, findings: Sequence[Finding], facts: Facts) -> tuple[Finding | None, str]:
    """The finding that a person reads first, and how it leads; or none, and NONE or TOO_SHORT.

    ``findings`` are those of this row of the facts, in their order, and need no texts.
    """
    poor = next((finding for finding in findings if finding.problem is capture.CAPTURE_POOR), None)
    if poor and facts.once(capture.forbids_verdict)[number]:
        return poor, POOR
    if lead := broke(findings):
        return lead, TOLD
    if time is None or not time.jobs_ns:
        # discovery, a scan, or nothing at all
        note = next((finding for finding in findings if finding.rank == "note"), None)
        return (note, TOLD) if note and note.problem is not capture.CAPTURE_POOR else (None, NONE)
    cause = _cause(time, time.limiter or "transfer", findings)
    if cause and cause.leads:
        return cause, CAUSE
    slow = next((finding for finding in findings if finding.leads and not finding.problem.explains), None)
    if slow:
        return slow, BESIDE
    return None, TOO_SHORT if facts.once(moved_counts)[number] < MIN_TASKS else NONE


def broke(findings: Sequence[Finding]) -> Finding | None:
    """What broke, where a person has to read it first; ``findings`` are in their order."""
    return next(filter(is_failure, findings), None)


def is_failure(finding: Finding) -> bool:
    """Whether it is something that broke, and that a person has to read first."""
    return finding.rank == "failure" and finding.leads


def weight(headline: Headline | Verdict | Finding, busy_ns: float) -> tuple[int, float, float]:
    """How bad it is, to compare headlines: severity, time lost, busy time."""
    rank = _RANKS.get(headline.severity, 0) if headline.name not in (NONE, TOO_SHORT) else 0
    return rank, headline.cost_ns or 0.0, busy_ns


_RANKS: Final = {"warning": 1, "data_loss": 2, "error": 3}


def _nothing(name: str, subject: Session) -> str:
    """No busy time: nothing was read or written, or no time of it was seen."""
    data = int(subject.is_data.sum())
    if not data:
        return nothing_done(subject)
    if not (subject.is_data & known(subject.cycles, "status_ns")).any():
        none = "has no status" if data == 1 else "have no status"
        return f"{name}: its {wording.count(data, 'read or write', 'reads and writes')} {none}: no time to break down."
    return f"{name}: its reads and writes took no time by the capture's clock."


def _line_bound(name: str, subject: Session, findings: Sequence[Finding]) -> str:
    """Data transfer takes more time than all waits together."""
    share = wording.percent(subject.share(subject.part_ns("transfer")))
    start = f"{name} is line-bound: {share} of the time is data transfer"
    if cause := _cause(subject.budget, "transfer", findings):
        return f"{start}. {cause.cause}"
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
    cause = _cause(subject.budget, part, findings)
    return f"{start} {words.limited}: {share} of the time is {words.spent}{rtt}.{f' {cause.cause}' if cause else ''}"


def _cause(time: Budget | None, part: str, findings: Sequence[Finding]) -> Finding | None:
    """The most specific finding among those of similar cost; None where the cause is unknown."""
    causes = [finding for finding in findings if finding.problem.explains and finding.problem.explains.part == part]
    most = max((finding.share or 0.0 for finding in causes), default=0.0)
    own = time.parts_ns[part] / time.jobs_ns if time and time.jobs_ns else 0.0
    # at least half of the largest share, and a third of the part
    large = [finding for finding in causes if (finding.share or 0.0) >= max(most / 2, own / 3)]
    return max(large, key=lambda each: each.problem.explains.specificity if each.problem.explains else 0, default=None)


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
    counts = other_operations(subject)
    what = "The device scan" if is_scan(counts) else "Other work"
    count = wording.count(counts.total(), "non-I/O command")
    return f"{what} took {wording.time(scan_ns)}: {count} ({operations_in_words(counts)})."


def _flushes(subject: Session) -> str:
    """Time of SYNCHRONIZE CACHE apart from reads and writes."""
    flush_ns = _excluded_ns(subject, "flush")
    return f"SYNCHRONIZE CACHE took {wording.time(flush_ns)} apart from that." if flush_ns else ""


def _excluded_ns(subject: Session, use: str) -> int:
    """Time that is no busy time, where it is worth a note."""
    amount_ns = subject.budget.uses_ns[use] if subject.budget else 0
    return amount_ns if amount_ns >= THINK_MAX_NS or is_worth(subject, amount_ns) else 0


def moved_counts(facts: Facts) -> NDArray[np.int64]:
    """The commands of each session or connection that moved data."""
    return facts.count("cycles", _has_moved)


def _has_moved(cycles: Table) -> NDArray[np.bool_]:
    """Which commands are the workload: complete reads and writes; UNMAP and the like are, too."""
    return cycles.each(is_whole_transfer) | (cycles.each(is_data_command) & ~cycles.each(is_transfer))


def _caveat(subject: Session) -> str:
    count = subject.fact(moved_counts)
    return f"Only {wording.count(count, 'command')} moved data: too few to be sure." if count < MIN_TASKS else ""
