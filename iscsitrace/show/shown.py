"""Which sessions a diagnosis shows in full, and the others as tables: by headline; and the verdicts of all by
initiator, target, LUN, volume and hour.

A subject is a session with its connections, or a connection without a session.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.diagnosis import subject as subjects
from iscsitrace.diagnosis import verdict_groups
from iscsitrace.diagnosis.headline import NONE, TOO_SHORT, weight
from iscsitrace.diagnosis.verdict_groups import ELSEWHERE
from iscsitrace.errors import InputInvalid
from iscsitrace.show.document import Grid, Section, table
from iscsitrace.show.loads import HEADINGS
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells
from iscsitrace.wording.parts import BY_NAME

if TYPE_CHECKING:
    from iscsitrace.diagnosis.examination import Diagnosis
    from iscsitrace.diagnosis.headline import Verdict
    from iscsitrace.diagnosis.opinions import Opinion, StoryOpinion
    from iscsitrace.diagnosis.subject import Subject
    from iscsitrace.diagnosis.verdict_groups import Group, Tally, VerdictGroups
    from iscsitrace.measure.intervals import Span
    from iscsitrace.relate.jobs.streams import Job
    from iscsitrace.tables.trace import TraceTables


LISTED: Final = 10
"""Sessions that a line or message names."""
HEADLINES: Final = {NONE: "healthy", TOO_SHORT: "too few commands"}
"""Headlines that are no finding, in a table."""


@dataclass(frozen=True)
class ShowOptions:
    """What a person asks to see in full."""

    top: int
    """The most subjects, the worst first."""
    sessions: Sequence[int] = ()
    """These sessions, and no other subject, where any are named."""
    is_verbose: bool = False
    """All of those that are alike."""


class Shown:
    """What is shown of a diagnosis."""

    def __init__(self, trace: TraceTables, diagnosis: Diagnosis, choice: ShowOptions) -> None:
        """InputInvalid for a session that is not there."""
        self._diagnosis = diagnosis
        self._choice = choice
        self._left_out: list[Verdict] = []
        session_of = {row["connection"]: row["session"] for row in trace.connections.rows(("connection", "session"))}
        if choice.sessions:
            sessions, alone = self._requested(), []
        else:
            sessions = list(diagnosis.sessions)
            alone = [number for number in diagnosis.separate if session_of[number] is None]
        if len(sessions) + len(alone) > choice.top and not choice.sessions:
            ranked = [(diagnosis.sessions.verdicts[number], True) for number in sessions]
            ranked += [(diagnosis.separate.verdicts[number], False) for number in alone]
            ranked.sort(key=lambda each: each[0].weight, reverse=True)
            self._left_out = [each for each, _ in ranked[choice.top :]]
            sessions, alone = (
                [each.number for each, is_session in ranked[: choice.top] if is_session == wanted]
                for wanted in (True, False)
            )
        self._numbers = set(sessions)
        own = {number for number, session in session_of.items() if session in self._numbers and session is not None}
        connections = sorted(own & {*diagnosis.separate} | {*alone})
        self.subjects: list[tuple[str, Opinion]] = [
            *((f"session {number}", diagnosis.sessions[number]) for number in sessions),
            *((f"connection {number}", diagnosis.connections[number]) for number in connections),
        ]
        """Each with its label, the worst first where not all are shown. A session stands for its only connection."""

    @cached_property
    def alike(self) -> dict[str, list[str]]:
        """By the label of a subject those of later ones whose headline differs by its number alone."""
        firsts: dict[str, str] = {}
        found: dict[str, list[str]] = {}
        # sessions of one story have the same
        texts = {opinion.headline.text: label for label, opinion in reversed(self.subjects)}
        for label, opinion in self.subjects:
            text = opinion.headline.text
            if texts[text] != label:
                continue
            kind, _ = label.split()
            first = firsts.setdefault(re.sub(rf"\b{label}\b", kind, text, flags=re.IGNORECASE), label)
            found.setdefault(first, []).extend([label] if label != first else [])
        return found

    @property
    def in_full(self) -> list[tuple[str, Opinion]]:
        """The subjects with their time breakdown and findings: of many that are alike the first."""
        if self.is_whole or self.is_requested or self._choice.is_verbose:
            return self.subjects
        alike = {label for others in self.alike.values() for label in others}
        return [(label, opinion) for label, opinion in self.subjects if label not in alike]

    def together(self) -> Iterator[Subject]:
        """The same, but sessions that took each other's place as one, where all of them are shown."""
        stories, sessions, said = self._diagnosis.stories, self._diagnosis.sessions, set[int]()
        for label, opinion in self.in_full:
            place = self._story_of.get(opinion.number) if label.startswith("session") else None
            if place is None or not self._numbers.issuperset(filter(sessions.__contains__, stories.numbers[place])):
                yield replace(subjects.of_session(opinion), label=label)
            elif place not in said:
                said.add(place)
                yield subjects.of_story(stories[place], sessions)

    def _requested(self) -> list[int]:
        sessions, numbers = self._diagnosis.sessions, dict.fromkeys(self._choice.sessions)
        for number in numbers:
            if number not in sessions:
                known = ", ".join(map(str, [*sessions][:LISTED])) or "none"
                raise InputInvalid(f"there is no session {number}; there are {known}")
        return list(numbers)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return not (self._left_out or self.is_requested)

    @property
    def is_requested(self) -> bool:
        """Whether it is what was asked for by number."""
        return bool(self._choice.sessions)

    @cached_property
    def unanswered(self) -> list[StoryOpinion]:
        """Stories of connects without a session that have findings."""
        if self.is_requested:
            return []
        found = self._diagnosis.stories.of_connections
        if len(found) > self._choice.top:
            found.sort(key=lambda each: weight(each.headline, 0.0), reverse=True)
        return found[: self._choice.top]

    @property
    def jobs(self) -> list[Job]:
        """Jobs of parallel streams: all, or those of the sessions that are shown."""
        found = self._diagnosis.jobs
        if self.is_whole:
            return list(found)
        return [job for job in found if any(run.session in self._numbers for run in job.runs)][: self._choice.top]

    def others(self) -> Iterator[Section]:
        """The sessions that are not shown, by headline and limiter, the worst first."""
        if not self._left_out:
            return
        groups: dict[tuple[str, str | None], list[Verdict]] = {}
        for verdict in self._left_out:
            groups.setdefault((verdict.name, verdict.limiter), []).append(verdict)
        columns = ("sessions", "headline", "limiter", "lost s", "I/O s", "worst")
        rows = (
            (
                len(each),
                HEADLINES.get(name, name),
                BY_NAME[limiter].limited if limiter else None,
                cells.seconds(self._lost_ns(each) or None),
                cells.seconds(sum(one.jobs_ns for one in each)),
                each[0].number,
            )
            for (name, limiter), each in groups.items()
        )
        yield Section(
            f"{wording.count(len(self._left_out), 'session')} less severe, by headline",
            ("--top COUNT shows more of them in full, --session NUMBER shows one.", table(columns, rows)),
        )

    def _lost_ns(self, verdicts: Sequence[Verdict]) -> float:
        """The time that these lost: sessions that took each other's place lost that of their failure once."""
        lost_ns = 0.0
        seen: set[tuple[int | None, tuple[Span, ...]]] = set()
        for each in verdicts:
            failure = self._story_of.get(each.number), each.spans
            if each.is_failure and failure in seen:
                continue
            seen.add(failure)
            lost_ns += each.cost_ns or 0.0
        return lost_ns

    @cached_property
    def _story_of(self) -> dict[int, int]:
        stories = self._diagnosis.stories.numbers
        return {number: place for place, numbers in enumerate(stories) for number in numbers}


GROUPS_READING: Final = (
    "Worst first: what broke, then by time lost. The number before a headline counts its sessions; elsewhere marks "
    "sessions with a problem that is not here. Sessions that replaced each other count their lost time once."
)
_SHARED: Final = "A session that uses several of them counts in each, with the time of its commands there."
_TALLIES: Final = 3
"""Headlines of a group that are named."""


def sections_of_groups(
    trace: TraceTables, diagnosis: Diagnosis, by: Sequence[str], sessions: Collection[int] = (), top: int | None = None
) -> Iterator[Section]:
    """A table for each of ``by``, of the ``top`` worst groups; only these ``sessions``, where any are named."""
    found = (groups_by(trace, diagnosis, name, sessions) for name in by)
    yield Section("", ("", GROUPS_READING, *(groups_grid(each, top) for each in found)))


def groups_by(trace: TraceTables, diagnosis: Diagnosis, name: str, sessions: Collection[int] = ()) -> VerdictGroups:
    """The verdicts by one attribute; only these ``sessions``, where any are named."""
    return verdict_groups.find(name, trace.table, diagnosis.stories, sessions)


def groups_as_dict(
    trace: TraceTables, diagnosis: Diagnosis, by: Sequence[str], sessions: Collection[int] = ()
) -> dict[str, list[dict[str, Any]]]:
    """All groups by each of ``by``, for JSON."""
    found = (groups_by(trace, diagnosis, name, sessions) for name in by)
    return {each.name: [group.as_dict() for group in each.groups] for each in found}


def groups_grid(found: VerdictGroups, top: int | None = None) -> Grid:
    """The table of groups, with notes on what it omits."""
    heading, _ = HEADINGS[found.name]
    has_hosts = any(each.host is not None for each in found.groups)
    columns = (heading, *(("initiator",) if has_hosts else ()), "sessions", "headlines", "lost s", "I/O s", "worst")
    rows = [
        (
            cells.short(each.label),
            *((cells.short(each.host),) if has_hosts else ()),
            each.session_count,
            _headlines_of(each),
            cells.seconds(each.lost_ns or None),
            cells.seconds(each.busy_ns),
            each.worst,
        )
        for each in found.groups[:top]
    ]
    notes = [_SHARED] if found.has_shared and found.name != "hour" else []
    if found.absent_count:
        noun = wording.count(found.absent_count, "session")
        notes.append(f"{noun} without reads and writes {'is' if found.absent_count == 1 else 'are'} not shown.")
    return table(columns, rows, f"Sessions by {heading}", count=len(found.groups), notes=notes)


def _headlines_of(group: Group) -> str:
    tallies = group.tallies
    more = len(tallies) - _TALLIES
    return ", ".join([*map(_tally, tallies[:_TALLIES]), *([f"{more} more"] if more > 0 else [])])


def _tally(tally: Tally) -> str:
    """``298 latency-bound: queue_depth_low``."""
    limited = f"{BY_NAME[tally.limiter].limited}: " if tally.limiter and tally.name != ELSEWHERE else ""
    return f"{tally.session_count:,} {limited}{HEADLINES.get(tally.name, tally.name)}"
