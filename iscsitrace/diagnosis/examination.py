"""The diagnosis of a trace: the time breakdown, headline and findings of every session and connection, and the headline
of all.

Pure functions of tables. The files of `iscsitrace.findings` declare the problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from iscsitrace.diagnosis import headline, registry
from iscsitrace.diagnosis.headline import Headline
from iscsitrace.diagnosis.opinions import Opinion, Opinions, Stories
from iscsitrace.findings.case import Case, Groups
from iscsitrace.findings.finding import Finding
from iscsitrace.findings.history import History, Surroundings, TapOf, only_tap
from iscsitrace.measure.grouping import Grouping
from iscsitrace.measure.line import times_by_line
from iscsitrace.relate import paths, stories, volumes
from iscsitrace.relate.jobs import streams
from iscsitrace.relate.jobs.streams import Job
from iscsitrace.relate.mirrors import account
from iscsitrace.relate.mirrors.account import Account
from iscsitrace.relate.outages import outages_of_volumes
from iscsitrace.relate.volumes import Volume
from iscsitrace.tables import memory
from iscsitrace.tables.table import Source
from iscsitrace.tables.trace import TraceTables


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a trace, by number of session and of connection."""

    sessions: Opinions
    connections: Mapping[int, Opinion]
    separate: Opinions
    """Those of connections that are not the only one of a session: such a one has the session's diagnosis."""
    stories: Stories
    """Sessions that took each other's place, and connections without a session."""
    mirrors: tuple[Account, ...] = ()
    """Mirrored sessions."""
    jobs: tuple[Job, ...] = ()
    """Connections that run one job in parallel."""
    volumes: tuple[Volume, ...] = ()
    """The logical units of each initiator."""
    volume_outages: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """From when until when each volume was out, by its number."""

    @property
    def headline(self) -> Headline | None:
        """What is read first of the whole capture; None where there is no iSCSI in it."""
        return self.stories.foremost

    @property
    def budget(self) -> dict[str, int]:
        """Nanoseconds by part, summed over all sessions."""
        return self.sessions.whole_ns

    @property
    def found(self) -> set[str]:
        """The names of all findings."""
        return self.sessions.found | self.separate.found | self.stories.found

    @property
    def problems(self) -> set[str]:
        """The names of the findings that lead where the verdict is problem."""
        every = (*self.sessions.verdicts.values(), *self.separate.verdicts.values(), *self.stories.verdicts)
        return {verdict.name for verdict in every if verdict.kind == "problem"}


def examine_trace(trace: TraceTables) -> Diagnosis:
    """Diagnose a trace that was read with the tables NEEDED."""
    return examine(trace.table, tap_of=trace.tap_of, start_ns=trace.start_ns)


def examine(
    source: Source, *, has_mirrors: bool = True, tap_of: TapOf = only_tap, start_ns: int | None = None
) -> Diagnosis:
    """The same of its tables: ``source`` has them by name.

    Without ``has_mirrors`` mirrors are not searched for, and only jobs known by session or names count: the sides of a
    mirror would else look like parallel streams. ``tap_of`` names the taps, where there are several.
    ``start_ns`` is the zero of the times that sentences say: the first packet of a connection, where nothing is given.
    """
    grouping = Grouping(source)
    surroundings = Surroundings(source, tap_of, start_ns)
    found_volumes = surroundings.once(volumes.find)
    accounts = tuple(account.of_trace(source, found_volumes)) if has_mirrors else ()
    memory.give_back(source)
    found = streams.find(source, [each.mirror for each in accounts])
    jobs = tuple(job for job in found if has_mirrors or job.is_certain)
    uses = tuple(paths.of_trace(source, found_volumes))
    times = surroundings.start_ns(), surroundings.end_ns()
    groups = Groups(accounts, jobs, source("cycles"), times_by_line(source), uses, tap_of, *times)
    all_stories = stories.find(source)
    members = [(story.numbers, story.connection_numbers) for story in all_stories]
    _, possible = registry.look(grouping.facts_together(members), registry.of_scopes("story"))
    memory.give_back(source)
    told = []
    shared: dict[int, list[Finding]] = {}
    for story, problems in zip(all_stories, possible, strict=True):
        history = History(story, grouping.sessions, surroundings)
        own = registry.findings_of(history, problems)
        shared |= dict.fromkeys(story.numbers, own)
        told.append((story, history.label, registry.ordered(own)))
    numbers = sorted(number for number in shared if number in grouping.sessions)
    sessions = Opinions(numbers, grouping.sessions, registry.of_scopes("connection", "session"), groups, shared)
    memory.give_back(source)
    connections = _Connections(grouping, groups, sessions)
    return Diagnosis(
        sessions,
        connections,
        connections.separate,
        Stories(told, sessions),
        accounts,
        jobs,
        found_volumes.all,
        outages_of_volumes(source, found_volumes),
    )


class _Connections(Mapping[int, Opinion]):
    """The diagnosis of each connection; of the only one of a session it is derived when it is used."""

    def __init__(self, grouping: Grouping, groups: Groups, sessions: Mapping[int, Opinion]) -> None:
        self._connections = grouping.connections
        self._groups = groups
        self._sessions = sessions
        several = [number for number in self._connections if not grouping.is_alone(number)]
        self.separate = Opinions(several, self._connections, registry.of_scopes("connection"), groups)

    def __getitem__(self, number: int) -> Opinion:
        """The diagnosis of its session, less findings of sessions alone and of stories."""
        if number in self.separate:
            return self.separate[number]
        subject = self._connections[number]
        opinion = self._sessions[subject.connections[0]["session"]]
        own = [finding for finding in opinion.findings if finding.problem.scope == "connection"]
        return replace(opinion, number=number, headline=headline.of(Case(subject, self._groups), own), findings=own)

    def __iter__(self) -> Iterator[int]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)
