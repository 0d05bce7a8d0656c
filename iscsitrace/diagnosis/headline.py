"""The headline: what broke, what is wrong, or what limits the reads and writes; of a healthy session what takes most of
its time.

Lost data come before all else, what broke before what is slow, and what is wrong before a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings import capture
from iscsitrace.findings.breaches import PROTOCOL_VIOLATION
from iscsitrace.findings.case import Case
from iscsitrace.findings.distance import NEAR_NS
from iscsitrace.findings.finding import Finding
from iscsitrace.findings.hosts import typical_service
from iscsitrace.findings.idle_sessions import long_work, nothing_done, works_long
from iscsitrace.findings.loss import LOSS
from iscsitrace.findings.thresholds import WARNING
from iscsitrace.findings.transport import CONGESTION_WINDOW_SMALL
from iscsitrace.measure.budget import Budget
from iscsitrace.measure.data_commands import is_data_command, is_transfer, is_whole_transfer
from iscsitrace.measure.facts import Facts, path_ns
from iscsitrace.measure.grouping import Grouping
from iscsitrace.measure.intervals import Span
from iscsitrace.measure.losses import are_beyond_a_queue
from iscsitrace.measure.session import Session
from iscsitrace.measure.workload import MIN_TASKS, MOST
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Source, Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.parts import BY_NAME
from iscsitrace.wording.sentences import brief, capital, sentence

NONE: Final = "none"
"""The name of the headline of a session without a problem or a limit."""

TOO_SHORT: Final = "too_short"
"""The name of the headline where too few commands moved data to be sure of anything."""

Kind = Literal["healthy", "limited", "problem", "unknown"]
"""Nothing is wrong; I/O is as fast as path and load let it be; something is wrong; or the capture cannot tell."""


@dataclass(frozen=True)
class Headline:
    """The sentences that a person reads first."""

    text: str
    """What it is, how much and since when, in at most three sentences."""
    name: str = NONE
    """The finding's name; none where there is no problem, too_short where nothing can be said."""
    kind: Kind = "unknown"
    """The verdict."""
    severity: str = "info"
    sessions: tuple[int, ...] = ()
    luns: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()
    cost_ns: float | None = None
    """The time that it costs; None where this is unknown."""
    finding: Finding | None = field(default=None, compare=False, repr=False)
    """The finding that leads, with its advice; None where none does."""

    @property
    def loses_data(self) -> bool:
        """Whether data that were reported as written are lost."""
        return self.finding is not None and self.finding.loses_data

    @property
    def first_step(self) -> str:
        """The one thing to do; empty where nothing is to be done."""
        return next(iter(self.finding.advice), "") if self.finding and self.kind in ("limited", "problem") else ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "verdict": self.kind,
            "severity": self.severity,
            "sessions": list(self.sessions),
            "luns": list(self.luns),
            "from_ns": min((first for first, _ in self.spans), default=None),
            "to_ns": max((last for _, last in self.spans), default=None),
            "cost_ns": None if self.cost_ns is None else round(self.cost_ns),
            "text": self.text,
            "advice": self.first_step,
        }


@dataclass(frozen=True)
class Verdict:
    """What a headline says of one session, connection or story, without its sentences."""

    number: int
    """Of the session or connection; of a story its place."""
    name: str
    """As in :class:`Headline`."""
    kind: Kind
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
    loses_data: bool = False
    """Whether data that were reported as written are lost."""

    @property
    def weight(self) -> tuple[int, float, float]:
        """How bad it is, beside other sessions: severity of the headline, time lost, busy time."""
        return weight(self, self.jobs_ns)


def verdict(number: int, time: Budget | None, findings: Sequence[Finding], facts: Facts) -> Verdict:
    """The verdict on a session or connection with these findings, in their order: see `choose`."""
    lead, name, kind = choose(number, time, findings, facts)
    rest = (time.limiter, time.jobs_ns) if time else (None, 0)
    return verdict_of(lead, number, *rest) if lead else Verdict(number, name, kind, "info", None, *rest)


def verdict_of(lead: Finding, number: int, limiter: str | None, jobs_ns: int) -> Verdict:
    """The verdict where this finding leads."""
    verdict = Verdict(number, lead.name, kind_of(lead), lead.severity, lead.cost_ns, limiter, jobs_ns)
    if not is_failure(lead):
        return verdict
    return replace(verdict, is_failure=True, spans=lead.spans, luns=lead.luns, loses_data=lead.loses_data)


def kind_of(lead: Finding) -> Kind:
    """The verdict where this finding leads: of a note, such as discovery alone, unknown."""
    if lead.is_problem:
        return "problem"
    return "limited" if lead.leads else "unknown"


def of_finding(finding: Finding, text: str | None = None) -> Headline:
    """The headline of a finding, in its words unless others are given: what is left out are details (-v)."""
    return Headline(
        brief(text or finding.text),
        finding.name,
        kind_of(finding),
        finding.severity,
        finding.sessions,
        finding.luns,
        finding.spans,
        finding.cost_ns,
        finding,
    )


def of(case: Case, findings: Sequence[Finding]) -> Headline:
    """The headline of a session or connection with these findings, in their order."""
    subject = case.subject
    name = capital(subject.label)
    lead, known_as, kind = choose(subject.place, subject.budget, findings, subject.facts)
    if lead and lead.problem is capture.CAPTURE_POOR:
        return of_finding(lead, f"{name}: the capture is too poor for a verdict. {sentence(capture.reasons(subject))}")
    if lead and (lead.rank in ("failure", "note") or lead.problem is PROTOCOL_VIOLATION):
        return of_finding(lead)
    if lead:
        limit = f" is limited by {lead.problem.limited_by}" if lead.rank == "limit" else " has a problem"
        return of_finding(lead, f"{name}{limit}. {_with_share(lead)}")
    if subject.budget is None or not subject.jobs_ns:
        text = _nothing(name, subject, kind)
    elif kind == "healthy":
        text = f"{name} is healthy. {_largest(subject)}{_beside(subject)}"
    elif kind == "limited":
        text = f"{name} is limited by network latency. {_largest(subject)}{_beside(subject)}"
    else:
        moved = subject.fact(moved_counts)
        few = (
            f"only {wording.count(moved, 'command')} moved data, too few"
            if moved
            else "no command moved data: too little"
        )
        text = f"{name}: {few} for a verdict. {_largest(subject)}{_beside(subject)}"
    return Headline(text, known_as, kind, "info", case.sessions, case.luns, case.spans)


def choose(
    number: int, time: Budget | None, findings: Sequence[Finding], facts: Facts
) -> tuple[Finding | None, str, Kind]:
    """The finding that a person reads first, or none; the name of the headline; the verdict.

    ``findings`` are those of this row of the facts, in their order, and need no texts. What is wrong comes before a
    limit: the cause of the limiter, else what costs most; losses before the window that they keep small. A limit leads
    where it is the cause of the limiter, or where it explains no part of the time alone.
    """
    poor = next((finding for finding in findings if finding.problem is capture.CAPTURE_POOR), None)
    lead = next((each for each in findings if each.loses_data), None)
    if not lead:
        lead = poor if poor and facts.once(hides_the_rest)[number] else broke(findings)
    if not lead and (time is None or not time.jobs_ns):
        # discovery, a scan, or nothing at all
        lead = next((finding for finding in findings if finding.rank == "note" and finding is not poor), None)
        if lead:
            return lead, lead.name, "unknown"
        is_fine = facts.once(works_long)[number] and not any(each.rank == "failure" for each in findings)
        return None, NONE, "healthy" if is_fine else "unknown"
    if not lead and time:
        limiter = time.limiter or "transfer"
        # a rule that was broken without a consequence costs no time: what costs time comes before it
        broken = next((each for each in findings if each.is_problem and each.problem is PROTOCOL_VIOLATION), None)
        wrong = [finding for finding in findings if finding.is_problem and finding is not broken]
        limits = [each for each in findings if each.rank == "limit" and each.leads]
        beside = next((each for each in limits if not each.problem.explains), None)
        cause = _cause(time, limiter, findings)
        full = beside or (cause if cause in limits and limiter == "transfer" else None)
        if full and (full.share or 0.0) >= MOST and not facts.once(are_beyond_a_queue)[number]:
            # before a full line, or a queue that takes most of each round trip, losses and small windows follow from it
            wrong = [finding for finding in wrong if finding.problem not in (LOSS, CONGESTION_WINDOW_SMALL)]
        lead = _cause(time, limiter, wrong) or next(iter(wrong), beside or (cause if cause in limits else broken))
        if lead and lead.problem is CONGESTION_WINDOW_SMALL:
            # the losses made it small
            lead = next((finding for finding in wrong if finding.problem is LOSS), lead)
    if lead:
        return lead, lead.name, kind_of(lead)
    if facts.once(moved_counts)[number] < MIN_TASKS:
        return None, TOO_SHORT, "unknown"
    is_far = time is not None and time.limiter in _OF_THE_PATH and facts.once(path_ns)[number] >= NEAR_NS
    return None, NONE, "limited" if is_far else "healthy"


_OF_THE_PATH: Final = ("propagation", "congestion_window", "receive_window", "send_buffer")
"""Parts that grow with the RTT: a window makes its sender wait for it."""


def to_act_on(headline: Headline, findings: Sequence[Finding]) -> list[Finding]:
    """What something has to be done about: the finding of the headline, then others that are problems; where something
    broke, only what did. ``findings`` are those of the same session or story, in their order.
    """
    if headline.kind not in ("limited", "problem"):
        return []
    found = [finding for finding in findings if finding.name == headline.name or finding.is_problem]
    if headline.finding and is_failure(headline.finding):
        found = [finding for finding in found if finding.rank == "failure"]
    return sorted(found, key=lambda each: each.name != headline.name)


def broke(findings: Sequence[Finding]) -> Finding | None:
    """What broke, where a person has to read it first; ``findings`` are in their order."""
    return next(filter(is_failure, findings), None)


def is_failure(finding: Finding) -> bool:
    """Whether it is something that broke, and that a person has to read first."""
    return finding.rank == "failure" and finding.leads


def weight(headline: Headline | Verdict | Finding, busy_ns: float) -> tuple[int, float, float]:
    """How bad it is, to compare headlines: lost data, severity, time lost, busy time."""
    rank = _RANKS.get(headline.severity, 0) if headline.name not in (NONE, TOO_SHORT) else 0
    if headline.loses_data:
        rank = max(_RANKS.values()) + 1
    return rank, headline.cost_ns or 0.0, busy_ns


_RANKS: Final = {"warning": 1, "data_loss": 2, "error": 3}


def _nothing(name: str, subject: Session, kind: Kind) -> str:
    """No busy time: nothing was read or written, or no time of it was seen."""
    data = int(subject.is_data.sum())
    if not data and (work := long_work(subject)):
        return f"{name}{' is healthy.' if kind == 'healthy' else ':'} {work}. Nothing was read or written."
    if not data:
        return nothing_done(subject)
    if not (subject.is_data & known(subject.cycles, "status_ns")).any():
        return f"{name}: {wording.count(data, 'read or write', 'reads and writes')}, none with a status."
    return f"{name}: the capture's clock is too coarse to time its reads and writes."


def _with_share(lead: Finding) -> str:
    """The text of a finding, its first sentence with the share of the I/O time that it costs."""
    if lead.cost_ns is None or not lead.share:
        return lead.text
    first, stop, rest = lead.text.removesuffix(".").partition(". ")
    # one pair of parentheses
    first = f"{first.removesuffix(')')}; " if first.endswith(")") else f"{first} ("
    return f"{first}{wording.percent(lead.share)} of the I/O time){stop}{rest}."


def _largest(subject: Session) -> str:
    """The largest part of the time breakdown, with its figure."""
    part = subject.budget.limiter if subject.budget else None
    name = part or "transfer"
    share = wording.percent(subject.share(subject.part_ns(name)))
    figure = ""
    if name == "propagation" and subject.path_ns is not None:
        figure = f": a round trip takes at least {wording.time(subject.path_ns)}"
    elif name == "target_service" and (typical := typical_service(subject)):
        figure = f": typically {typical}"
    return f"The largest part of the I/O time is {BY_NAME[name].spent} ({share}){figure}."


def _beside(subject: Session) -> str:
    """Long commands that move no data, as a further sentence; empty where there are none."""
    work = long_work(subject) if subject.fact(works_long) else ""
    return f" Beside I/O, {work}." if work else ""


def _cause(time: Budget, part: str, findings: Sequence[Finding]) -> Finding | None:
    """The most specific finding among those of similar cost; None where the cause is unknown."""
    causes = [finding for finding in findings if finding.problem.explains and finding.problem.explains.part == part]
    most = max((finding.share or 0.0 for finding in causes), default=0.0)
    own = time.parts_ns[part] / time.jobs_ns if time.jobs_ns else 0.0
    # at least half of the largest share, and a third of the part
    large = [finding for finding in causes if (finding.share or 0.0) >= max(most / 2, own / 3)]
    return max(large, key=lambda each: each.problem.explains.specificity if each.problem.explains else 0, default=None)


def hides_the_rest(facts: Facts) -> NDArray[np.bool_]:
    """Where a poor capture hides the limiter.

    It also does where so much of the streams is not decoded as makes a warning, and few commands are left to judge by.
    """
    is_cut = facts.once(capture.decoded_shares) < 1 - WARNING
    return np.asarray(facts.once(capture.forbids_verdict) | (is_cut & (facts.once(moved_counts) < MIN_TASKS)))


def moved_counts(facts: Facts) -> NDArray[np.int64]:
    """The commands of each session or connection that moved data."""
    return facts.count("cycles", _has_moved)


def _has_moved(cycles: Table) -> NDArray[np.bool_]:
    """Which commands are the workload: complete reads and writes; UNMAP and the like are, too."""
    return cycles.each(is_whole_transfer) | (cycles.each(is_data_command) & ~cycles.each(is_transfer))


def sufficiency(source: Source) -> tuple[bool, str]:
    """Whether it is, and that as sentences with what is missing, of the worst session; ``source`` has the tables of
    `iscsitrace.measure.NEEDED`.
    """
    sessions = Grouping(source).sessions
    if not len(sessions):
        return False, "The capture has no iSCSI session: there is nothing to diagnose."
    facts = sessions.facts
    is_poor, is_hidden = facts.once(capture.is_poor), facts.once(hides_the_rest)
    poor = [number for number in sessions if is_poor[number]]
    lacking = [number for number in poor if is_hidden[number]]
    if not poor:
        return True, "The capture is good enough to diagnose."
    there = facts.once(capture.decoded_shares) * facts.once(capture.captured_shares)
    worst = sessions[min(lacking or poor, key=there.__getitem__)]
    why = f"{worst.label}: {capture.reasons(worst)}."
    if not lacking:
        return True, f"The capture is good enough to diagnose. Some is missing from {why}"
    if len(lacking) == 1:
        return False, f"The capture is not good enough to diagnose {why}"
    of = f"{len(lacking):,} of {wording.count(len(sessions), 'session')}"
    return False, f"The capture is not good enough to diagnose {of}. {sentence(why)}"
