"""The diagnosis of a trace: the time breakdown, headline and findings of every session and connection, and the headline
of all.

Pure functions of tables. Each family declares its problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from iscsitrace.analysis.findings import gains, headline, registry
from iscsitrace.analysis.findings.case import Case, Groups
from iscsitrace.analysis.findings.finding import Finding, Problem
from iscsitrace.analysis.findings.headline import Headline
from iscsitrace.analysis.findings.history import History
from iscsitrace.analysis.findings.surroundings import Surroundings
from iscsitrace.analysis.groups import paths, stories, volume_outages, volumes
from iscsitrace.analysis.groups.jobs import streams
from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.analysis.groups.mirrors import account
from iscsitrace.analysis.groups.mirrors.account import Account
from iscsitrace.analysis.groups.stories import Story
from iscsitrace.analysis.groups.volumes import Volume
from iscsitrace.analysis.measures.budget import PARTS, Budget
from iscsitrace.analysis.session.grouping import Grouping
from iscsitrace.analysis.session.line import times_by_line
from iscsitrace.analysis.session.session import Session
from iscsitrace.analysis.session.system_calls import SystemCall
from iscsitrace.tables.table import Source
from iscsitrace.wording.sentences import capital


@dataclass(frozen=True)
class Opinion:
    """The diagnosis of one session or connection."""

    number: int
    headline: Headline
    time: Budget | None
    """The time breakdown; None where no command has a status. Shares of findings are of its busy time."""
    infer: Callable[[], SystemCall | None]
    """Infers the system call."""
    findings: list[Finding]
    """Failures first, then by share."""

    @property
    def system_call(self) -> SystemCall | None:
        """The inferred system call behind the reads and writes; None where nothing shows one."""
        return self.infer()

    @property
    def budget(self) -> dict[str, int] | None:
        """Nanoseconds by part from the first command to the last status."""
        return self.time.whole_ns if self.time else None

    @property
    def idle_fraction(self) -> float | None:
        """See :attr:`Budget.idle_fraction`."""
        return self.time.idle_fraction if self.time else None

    @property
    def limiter(self) -> str | None:
        """See :attr:`Budget.limiter`."""
        return self.time.limiter if self.time else None

    @property
    def jobs_ns(self) -> int:
        """Busy time."""
        return self.time.jobs_ns if self.time else 0

    @property
    def verdict(self) -> str:
        """The headline with its notes."""
        return self.headline.text

    @property
    def weight(self) -> tuple[int, float, float]:
        """How bad it is, beside other sessions: severity of the headline, time lost, busy time."""
        return headline.weight(self.headline, self.jobs_ns)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, beside the row of the session or connection."""
        call = self.system_call
        return {
            "verdict": self.verdict,
            "budget": self.budget,
            "jobs_ns": self.jobs_ns,
            "busy_budget": self.time.parts_ns if self.time else None,
            "shares": self.time.shares if self.time else None,
            "idle_fraction": self.idle_fraction,
            "limiter": self.limiter,
            "excluded_ns": self.time.uses_ns if self.time else None,
            "system_call": call
            and {"bytes": call.bytes, "pieces": list(call.pieces), "count": call.count, "is_at_once": call.is_at_once},
            "headline": self.headline.as_dict(),
            "findings": [finding.as_dict() for finding in self.findings],
        }


@dataclass(frozen=True)
class StoryOpinion:
    """What is read first of sessions that took each other's place."""

    story: Story
    label: str
    """See :attr:`History.label`."""
    headline: Headline
    findings: list[Finding]
    """Those of the story itself."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sessions": list(self.story.numbers),
            "connections": [row["connection"] for row in self.story.connections],
            "headline": self.headline.as_dict(),
            "findings": [finding.as_dict() for finding in self.findings],
        }


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a trace, by number of session and of connection."""

    sessions: dict[int, Opinion]
    connections: Mapping[int, Opinion]
    separate: tuple[Opinion, ...] = ()
    """Those of connections that are not the only one of a session: such a one has the session's diagnosis."""
    mirrors: tuple[Account, ...] = ()
    """Mirrored sessions."""
    jobs: tuple[Job, ...] = ()
    """Connections that run one job in parallel."""
    stories: tuple[StoryOpinion, ...] = ()
    """Sessions that took each other's place, and connections without a session."""
    volumes: tuple[Volume, ...] = ()
    """The logical units of each initiator."""
    volume_outages: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """From when until when each volume was out, by its number."""

    @property
    def headline(self) -> Headline | None:
        """What is read first of the whole capture; None where there is no iSCSI in it."""
        busy = {number: float(opinion.jobs_ns) for number, opinion in self.sessions.items()}
        return headline.foremost(
            [(each.headline, sum(busy.get(number, 0.0) for number in each.story.numbers)) for each in self.stories]
        )

    @property
    def budget(self) -> dict[str, int]:
        """Nanoseconds by part, summed over all sessions."""
        known = [opinion.budget for opinion in self.sessions.values() if opinion.budget]
        return {part: sum(budget[part] for budget in known) for part in PARTS}

    @property
    def found(self) -> set[str]:
        """The names of all findings."""
        subjects = [each.findings for each in (*self.sessions.values(), *self.separate)]
        stories = [each.findings for each in self.stories]
        return {finding.name for findings in (*subjects, *stories) for finding in findings}


def examine(source: Source, *, has_mirrors: bool = True) -> Diagnosis:
    """Diagnose a trace that was read with the tables NEEDED; ``source`` is its method ``table``.

    Without ``has_mirrors`` mirrors are not searched for, and only jobs known by session or names count: the sides of a
    mirror would else look like parallel streams.
    """
    grouping = Grouping(source)
    of_session = registry.possible(grouping.columns(), registry.OF_CASES)
    surroundings = Surroundings(source)
    found_volumes = surroundings.once(volumes.find)
    accounts = tuple(account.of_trace(source, found_volumes)) if has_mirrors else ()
    found = streams.find(source, [each.mirror for each in accounts])
    jobs = tuple(job for job in found if has_mirrors or job.is_certain)
    uses = tuple(paths.of_trace(source, found_volumes))
    groups = Groups(accounts, jobs, source("cycles"), times_by_line(source), uses)
    opinions: dict[int, Opinion] = {}
    told = []
    all_stories = stories.find(source)
    members = [(story.numbers, [row["connection"] for row in story.connections]) for story in all_stories]
    of_story = registry.possible(grouping.columns_together(members), registry.OF_STORIES)
    for story, problems in zip(all_stories, of_story, strict=True):
        history = History(story, grouping.sessions, surroundings)
        shared = registry.findings_of(history, problems)
        for number, subject in history.members.items():
            examined = partial(_case, grouping.sessions, number, groups)
            opinions[number] = _opinion(Case(subject, groups), examined, of_session[number], shared)
        told.append(_of_story(history, shared, opinions))
    opinions = dict(sorted(opinions.items()))
    own = _Connections(grouping, groups, opinions)
    outages = volume_outages.find(source, found_volumes)
    return Diagnosis(
        opinions, own, tuple(own.separate.values()), accounts, jobs, tuple(told), found_volumes.all, outages
    )


def _of_story(history: History, found: list[Finding], opinions: dict[int, Opinion]) -> StoryOpinion:
    """The headline of a story: of what broke, else of its session with the longest busy time."""
    members = [opinions[number] for number in history.sessions if number in opinions]
    ordered = registry.ordered(found)
    lead = next((finding for finding in ordered if finding.rank == "failure" and finding.leads), None)
    if lead:
        return StoryOpinion(history.story, history.label, headline.of_finding(lead), ordered)
    busy = headline.foremost([(each.headline, float(each.jobs_ns)) for each in members])
    if busy is None:
        note = next(iter(ordered), None)
        busy = headline.of_finding(note) if note else Headline(f"{capital(history.label)} carried no iSCSI commands.")
    return StoryOpinion(history.story, history.label, busy, ordered)


class _Connections(Mapping[int, Opinion]):
    """The diagnosis of each connection; of the only one of a session it is derived when it is used."""

    def __init__(self, grouping: Grouping, groups: Groups, sessions: Mapping[int, Opinion]) -> None:
        self._connections = grouping.connections
        self._groups = groups
        self._sessions = sessions
        self.separate = {
            number: self._examined(number) for number in self._connections if not grouping.is_alone(number)
        }

    def _examined(self, number: int) -> Opinion:
        examined = partial(_case, self._connections, number, self._groups)
        return _opinion(examined(), examined, registry.OF_CASES)

    def __getitem__(self, number: int) -> Opinion:
        return self.separate[number] if number in self.separate else self._of_session(self._connections[number])

    def _of_session(self, subject: Session) -> Opinion:
        """The diagnosis of its session, less findings of sessions alone and of stories."""
        opinion = self._sessions[subject.connections[0]["session"]]
        own = [
            finding
            for finding in opinion.findings
            if not finding.problem.is_session_only and finding.problem in registry.OF_CASES
        ]
        return replace(
            opinion, number=subject.number, headline=headline.of(Case(subject, self._groups), own), findings=own
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)


def _case(subjects: Mapping[int, Session], number: int, groups: Groups) -> Case:
    return Case(subjects[number], groups)


def _opinion(
    case: Case, examined: Callable[[], Case], problems: Sequence[Problem], shared: Sequence[Finding] = ()
) -> Opinion:
    """``examined`` makes the case anew, ``problems`` are those that it may have, ``shared`` those of its story."""
    found = gains.with_gains(examined, registry.ordered([*shared, *registry.findings_of(case, problems)]))
    subject = case.subject
    return Opinion(subject.number, headline.of(case, found), subject.budget, lambda: examined().system_call, found)
