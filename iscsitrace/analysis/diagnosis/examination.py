"""The examination of a trace: every session and connection with its budget, its verdict and its findings.

Pure functions of tables; what a disease is stands in ``diseases``, from when on in ``thresholds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iscsitrace.analysis.budget import PARTS
from iscsitrace.analysis.diagnosis import (
    acknowledgments,
    capture,
    command_window,
    distance,
    failures,
    gains,
    hosts,
    parallel,
    system_calls,
    transport,
    verdict,
    writes,
)
from iscsitrace.analysis.diagnosis.finding import Finding, by_weight
from iscsitrace.analysis.diagnosis.grouping import Source, subjects_of
from iscsitrace.analysis.diagnosis.subject import Subject

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


SESSION_ONLY: Final = frozenset({"command_window_closed", "uneven_connections"})
"""Findings about the connections of a session together."""


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


def examine(source: Source) -> Diagnosis:
    """Examines a trace read with the tables NEEDED; ``source`` is its method ``table``."""
    sessions, connections = subjects_of(source)
    groups = _used_together(source, connections)
    opinions = {number: _opinion(subject, groups.get(number, ())) for number, subject in sessions.items()}
    return Diagnosis(
        opinions,
        {number: _of_connection(subject, sessions, opinions) for number, subject in connections.items()},
    )


def _of_connection(subject: Subject, sessions: dict[int, Subject], opinions: dict[int, Opinion]) -> Opinion:
    """The opinion on a connection: on the only one of a session that on the session, less what only sessions have."""
    session = subject.connections[0]["session"]
    if session not in sessions or len(sessions[session].connections) > 1:
        return _opinion(subject, ())
    own = [finding for finding in opinions[session].findings if finding.name not in SESSION_ONLY]
    number = subject.connections[0]["connection"]
    # the session's subject knows much by now
    subject = sessions[session].as_connection(number)
    return replace(opinions[session], number=number, verdict=verdict.say(subject, own), findings=own)


def _used_together(source: Source, connections: dict[int, Subject]) -> dict[int, Sequence[Subject]]:
    """For each session the connections between the same initiator and target, of whichever session they are."""
    names = {}
    for row in source("sessions").rows(("session", "initiator_name", "target_name")):
        pair = (row["initiator_name"], row["target_name"])
        # without the login nobody knows what belongs together but the connections of one session
        names[row["session"]] = row["session"] if None in pair else pair
    by_name: dict[Any, list[Subject]] = {}
    for subject in connections.values():
        session = subject.connections[0]["session"]
        if session is not None:
            by_name.setdefault(names.get(session), []).append(subject)
    return {session: by_name.get(name, ()) for session, name in names.items()}


def _opinion(subject: Subject, together: Sequence[Subject]) -> Opinion:
    found = [finding for family in _FAMILIES for finding in family(subject)]
    found = gains.with_gains(subject, by_weight([*found, *parallel.find(subject, together)]))
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
