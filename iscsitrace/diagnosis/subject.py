"""What a person reads about: a session, or the story of sessions that took each other's place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from iscsitrace.diagnosis.headline import Headline
from iscsitrace.diagnosis.opinions import Opinion, StoryOpinion
from iscsitrace.findings.finding import Finding, in_order
from iscsitrace.measure.budget import Budget
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables


@dataclass(frozen=True)
class Subject:
    """A session or a story, with its diagnosis."""

    label: str
    sessions: tuple[int, ...]
    headline: Headline
    findings: tuple[Finding, ...]
    time: Budget | None
    connections: tuple[int, ...] | None = None
    """Its connections, where they are not those of its sessions."""

    @property
    def failure(self) -> Finding | None:
        """The finding of the headline, where it is about what broke."""
        return next(
            (each for each in self.findings if each.name == self.headline.name and each.rank == "failure"),
            None,
        )

    def commands(self, trace: TraceTables) -> Table:
        """The commands of its sessions."""
        cycles = trace.cycles
        return cycles.select(known(cycles, "session") & np.isin(cycles.raw("session"), self.sessions))

    def rows_of(self, connections: Table) -> list[dict[str, Any]]:
        """Its rows of ``connections``."""
        name, own = ("session", self.sessions) if self.connections is None else ("connection", self.connections)
        return list(connections.select(known(connections, name) & np.isin(connections.raw(name), own)).rows())


def of_session(opinion: Opinion) -> Subject:
    """A session on its own."""
    return Subject(
        f"session {opinion.number}", (opinion.number,), opinion.headline, tuple(opinion.findings), opinion.time
    )


def of_story(told: StoryOpinion, opinions: Mapping[int, Opinion]) -> Subject:
    """A story: what was found in it and in each of its sessions; ``opinions`` are those of all sessions."""
    members = [opinions[number] for number in told.story.numbers if number in opinions]
    if len(members) == 1:
        own = of_session(members[0])
        return own if told.headline.name == own.headline.name else replace(own, headline=told.headline)
    return Subject(
        told.label,
        told.story.numbers,
        told.headline,
        tuple(in_order([*told.findings, *_of_members(told, members)])),
        told.time,
        told.story.connection_numbers,
    )


def _of_members(told: StoryOpinion, members: list[Opinion]) -> list[Finding]:
    """The findings of its sessions, each problem once: where it has the largest share."""
    shared = {finding.name for finding in told.findings}
    found: dict[str, Finding] = {}
    for finding in (each for opinion in members for each in opinion.findings if each.name not in shared):
        known = found.get(finding.name)
        if known is None or (finding.share or 0.0) > (known.share or 0.0):
            found[finding.name] = finding
    return list(found.values())
