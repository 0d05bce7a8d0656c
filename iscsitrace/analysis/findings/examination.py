"""The examination of a trace: every session and connection with its budget, its verdict and its findings.

Pure functions of tables; what a disease is stands in ``diseases``, from when on in ``thresholds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from iscsitrace.analysis.findings import (
    acknowledgments,
    capture,
    command_window,
    distance,
    failures,
    gains,
    hosts,
    mirrored,
    parallel,
    transport,
    writes,
)
from iscsitrace.analysis.findings import (
    headline as verdict,
)
from iscsitrace.analysis.findings.finding import Finding, by_weight
from iscsitrace.analysis.groups.jobs import streams
from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.analysis.groups.mirrors import account
from iscsitrace.analysis.groups.mirrors.account import Account
from iscsitrace.analysis.measures.budget import PARTS
from iscsitrace.analysis.session import system_calls
from iscsitrace.analysis.session.grouping import Source, subjects_of
from iscsitrace.analysis.session.subject import Subject
from iscsitrace.tables.table import Table

_FAMILIES: Final[tuple[Callable[[Subject], Iterator[Finding]], ...]] = (
    failures.find,
    capture.find,
    distance.find,
    writes.find,
    acknowledgments.find,
    transport.find,
    hosts.find,
    command_window.find,
)


SESSION_ONLY: Final = frozenset({"command_window_closed", "uneven_connections", "mirror_waits_for_farthest"})
"""Findings about the connections of a session together, and about sessions together."""


@dataclass(frozen=True)
class Opinion:
    """What is to be said of one session or connection."""

    number: int
    verdict: str
    budget: dict[str, int] | None
    """Nanoseconds by part; None where no task has a status."""
    idle_fraction: float | None
    limiter: str | None
    jobs_ns: int
    """From first command to last status, less the pauses between jobs: what shares are of."""
    system_call: system_calls.SystemCall | None
    findings: list[Finding]
    """Failures first, then by what they cost."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON, beside the row of the session or connection."""
        call = self.system_call
        return {
            "verdict": self.verdict,
            "budget": self.budget,
            "idle_fraction": self.idle_fraction,
            "limiter": self.limiter,
            "jobs_ns": self.jobs_ns,
            "system_call": call
            and {"bytes": call.bytes, "pieces": list(call.pieces), "count": call.count, "is_at_once": call.is_at_once},
            "findings": [finding.as_dict() for finding in self.findings],
        }


@dataclass(frozen=True)
class Diagnosis:
    """Opinions by number of session and of connection."""

    sessions: dict[int, Opinion]
    connections: dict[int, Opinion]
    mirrors: tuple[Account, ...] = ()
    """Sessions that carry the same writes."""
    jobs: tuple[Job, ...] = ()
    """Connections that are streams of one job."""

    @property
    def budget(self) -> dict[str, int]:
        """Nanoseconds by part, of all sessions together."""
        known = [opinion.budget for opinion in self.sessions.values() if opinion.budget]
        return {part: sum(budget[part] for budget in known) for part in PARTS}

    @property
    def found(self) -> set[str]:
        """The names of all findings."""
        opinions = (*self.sessions.values(), *self.connections.values())
        return {finding.name for opinion in opinions for finding in opinion.findings}


@dataclass(frozen=True)
class _Groups:
    """What several sessions or connections are together, and the table of all their tasks."""

    mirrors: tuple[Account, ...]
    jobs: tuple[Job, ...]
    cycles: Table


def examine(source: Source, *, has_mirrors: bool = True) -> Diagnosis:
    """Examines a trace read with the tables NEEDED; ``source`` is its method ``table``.

    Without ``has_mirrors`` none are looked for, and of jobs only those that names tell: the legs of a mirror would else
    be taken for streams.
    """
    sessions, connections = subjects_of(source)
    accounts = tuple(account.of_trace(source)) if has_mirrors else ()
    found = streams.find(source, [each.mirror for each in accounts])
    jobs = tuple(job for job in found if has_mirrors or job.is_certain)
    groups = _Groups(accounts, jobs, source("cycles"))
    opinions = {number: _opinion(subject, groups) for number, subject in sessions.items()}
    own = {number: _of_connection(subject, sessions, opinions) for number, subject in connections.items()}
    return Diagnosis(opinions, own, accounts, jobs)


def _of_connection(subject: Subject, sessions: dict[int, Subject], opinions: dict[int, Opinion]) -> Opinion:
    """The opinion on a connection: on the only one of a session that on the session, less what only sessions have."""
    session = subject.connections[0]["session"]
    if session not in sessions or len(sessions[session].connections) > 1:
        return _opinion(subject, None)
    own = [finding for finding in opinions[session].findings if finding.name not in SESSION_ONLY]
    number = subject.connections[0]["connection"]
    # the session's subject knows much by now
    subject = sessions[session].as_connection(number)
    return replace(opinions[session], number=number, verdict=verdict.say(subject, own), findings=own)


def _opinion(subject: Subject, groups: _Groups | None) -> Opinion:
    found = [finding for family in _FAMILIES for finding in family(subject)]
    if groups:
        found += parallel.find(subject, groups.jobs, groups.cycles)
        found += mirrored.find(subject, groups.mirrors, groups.cycles)
        found = [each for each in found if each.name != "initiator_think_time" or not mirrored.explains(each, found)]
    found = gains.with_gains(subject, by_weight(found))
    sums = subject.budget
    number = int(subject.label.split()[1])
    return Opinion(
        number,
        verdict.say(subject, found),
        {part: sums.parts_ns[part] for part in PARTS} if sums else None,
        sums.idle_fraction if sums else None,
        sums.limiter if sums else None,
        subject.jobs_ns,
        system_calls.infer(subject.transfers),
        found,
    )
