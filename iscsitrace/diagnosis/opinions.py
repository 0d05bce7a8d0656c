"""Opinions: what is found in each session, connection and story, and what is read first of it.

What is found and what leads is known of all; sentences and frames are made when one is looked at: of ten thousand
sessions a person reads twenty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, overload

from iscsitrace.diagnosis import headline, registry
from iscsitrace.diagnosis.headline import Headline, Verdict
from iscsitrace.findings.case import Case, Groups
from iscsitrace.findings.finding import AdviceGain, Basis, Finding, Problem
from iscsitrace.fit.gain import WhatIf, of_session
from iscsitrace.measure.budget import PARTS, Budget, added
from iscsitrace.measure.grouping import Subjects
from iscsitrace.measure.session import Session
from iscsitrace.measure.system_calls import SystemCall
from iscsitrace.relate.stories import Story
from iscsitrace.wording.sentences import capital


def with_gains(examined: Callable[[], Case], findings: Sequence[Finding]) -> list[Finding]:
    """Add to each finding the gains of its advice. They are computed when they are first used: only those of findings
    that are shown. ``examined`` makes the case that has the findings.
    """
    predicted = _Predicted(examined, findings)
    return [
        replace(finding, predict=predicted) if any(advice.what_if for advice in finding.steps) else finding
        for finding in findings
    ]


class _Predicted:
    """The gains of all findings of a session, computed together when the first is used."""

    def __init__(self, examined: Callable[[], Case], findings: Sequence[Finding]) -> None:
        self._examined = examined
        self._findings = findings

    def __call__(self, finding: Finding) -> tuple[AdviceGain, ...]:
        return self._of.get(finding.name, ())

    @cached_property
    def _of(self) -> dict[str, tuple[AdviceGain, ...]]:
        """The gains by name of the finding."""
        case = self._examined()
        what_if = of_session(case.subject)
        if what_if is None:
            return {}
        return {each.name: tuple(_gains(Basis(case, what_if.measured, each), what_if)) for each in self._findings}


def _gains(basis: Basis, what_if: WhatIf) -> Iterator[AdviceGain]:
    for advice in sorted(basis.finding.steps, key=lambda each: not each.is_tried_first):
        for gain in what_if.gains(advice.what_if(basis)) if advice.what_if else ():
            yield AdviceGain(**vars(gain), advice=advice)


@dataclass(frozen=True)
class Opinion:
    """The diagnosis of one session or connection."""

    number: int
    headline: Headline
    time: Budget | None
    """The time breakdown; None where no command has a status. Shares of findings are of its busy time."""
    examined: Callable[[], Case]
    """Makes the case that was examined."""
    findings: list[Finding]
    """Failures first, then by share."""

    @property
    def system_call(self) -> SystemCall | None:
        """The inferred system call behind the reads and writes; None where nothing shows one."""
        return self.examined().system_call

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

    def as_dict(self) -> dict[str, Any]:
        """For JSON, beside the row of the session or connection."""
        case = self.examined()
        call, lead = case.system_call, self.headline.finding
        listed = lead.in_part(case) if lead else self.headline
        return {
            "verdict": self.headline.kind,
            **_of_time(self.time),
            # the old name of its time_breakdown
            "budget": self.budget,
            "idle_fraction": self.idle_fraction,
            "limiter": self.limiter,
            "excluded_ns": self.time.uses_ns if self.time else None,
            "system_call": call
            and {"bytes": call.bytes, "pieces": list(call.pieces), "count": call.count, "is_at_once": call.is_at_once},
            "headline": self.headline.as_dict() | {"sessions": list(listed.sessions), "luns": list(listed.luns)},
            "findings": [finding.in_part(case).as_dict() for finding in self.findings],
        }


def _of_time(time: Budget | None) -> dict[str, Any]:
    """Where the time of a session, a connection or a story went, for JSON."""
    return {
        "time_breakdown": time.whole_ns if time else None,
        "jobs_ns": time.jobs_ns if time else 0,
        "busy_budget": time.parts_ns if time else None,
        "shares": time.shares if time else None,
    }


@dataclass(frozen=True)
class StoryOpinion:
    """What is read first of sessions that took each other's place."""

    story: Story
    label: str
    """See :attr:`History.label`."""
    headline: Headline
    findings: Sequence[Finding]
    """Those of the story itself."""
    time: Budget | None
    """The time breakdown of its sessions together. Shares of its findings are of its busy time."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sessions": list(self.story.numbers),
            "connections": list(self.story.connection_numbers),
            **_of_time(self.time),
            "headline": self.headline.as_dict(),
            "findings": [finding.as_dict() for finding in self.findings],
        }


class Opinions(Mapping[int, Opinion]):
    """The diagnosis of sessions, or of connections, by number.

    What is found and what leads is known of all; sentences and frames are made when one is looked at, and then kept.
    """

    def __init__(
        self,
        numbers: Sequence[int],
        subjects: Subjects,
        problems: Sequence[Problem],
        groups: Groups,
        shared: Mapping[int, Sequence[Finding]] = MappingProxyType({}),
    ) -> None:
        """``shared`` are the findings of the story of each session."""
        self._subjects = subjects
        self._groups = groups
        self._findings: dict[int, list[Finding]] = {}
        self._made: dict[int, Opinion] = {}
        if not numbers:
            return
        subjects.facts.give(groups)
        decided, possible = registry.look(subjects.facts, problems)
        # before sessions are looked at one by one
        subjects.facts.forget()
        for number in numbers:
            own = decided.get(number, [])
            if possible[number]:
                others = registry.findings_of(Case(subjects[number], groups), possible[number])
                own = registry.in_declared_order([*own, *others]) if own else others
            self._findings[number] = registry.ordered([*shared.get(number, ()), *own])

    @cached_property
    def verdicts(self) -> dict[int, Verdict]:
        """What the headline of each says, without its sentences."""
        budgets, facts = self._subjects.budgets, self._subjects.facts
        return {
            number: headline.verdict(number, budgets.get(number), found, facts)
            for number, found in self._findings.items()
        }

    @property
    def times(self) -> Mapping[int, Budget]:
        """The time breakdown of each that has one."""
        return self._subjects.budgets

    @property
    def whole_ns(self) -> dict[str, int]:
        """Nanoseconds by part, summed over all."""
        return dict(zip(PARTS, self._subjects.facts.sums_ns.sum(axis=(0, 1)).tolist(), strict=True))

    @property
    def found(self) -> set[str]:
        """The names of all findings."""
        return {finding.name for found in self._findings.values() for finding in found}

    def __getitem__(self, number: int) -> Opinion:
        if number not in self._made:
            self._made[number] = self._opinion(number, self._findings[number])
        return self._made[number]

    def _opinion(self, number: int, findings: Sequence[Finding]) -> Opinion:
        examined = partial(_case, self._subjects, number, self._groups)
        case = examined()
        told = [finding if finding.text else finding.problem.told(finding, case) for finding in findings]
        found = with_gains(examined, told)
        first = headline.of(case, found)
        return Opinion(number, first, case.subject.budget, examined, found)

    def __iter__(self) -> Iterator[int]:
        return iter(self._findings)

    def __len__(self) -> int:
        return len(self._findings)


def _case(subjects: Mapping[int, Session], number: int, groups: Groups) -> Case:
    return Case(subjects[number], groups)


class Stories(Sequence[StoryOpinion]):
    """What is read first of each story, in their order; sentences are made when one is looked at."""

    def __init__(self, told: Sequence[tuple[Story, str, Sequence[Finding]]], opinions: Opinions) -> None:
        """``told`` are the stories, each with its label and its own findings in order."""
        self._told = told
        self._opinions = opinions

    @property
    def found(self) -> set[str]:
        """The names of all findings."""
        return {finding.name for _, _, findings in self._told for finding in findings}

    @property
    def foremost(self) -> Headline | None:
        """The headline of a whole capture: failures by time lost, then the slowness that costs most, then what has the
        longest busy time. None where there is nothing.
        """
        worst = self.worst
        return None if worst is None else self[worst].headline

    @cached_property
    def worst(self) -> int | None:
        """The place of the story whose headline is that of the capture; None where there is none."""
        return max(range(len(self)), key=lambda place: self.verdicts[place].weight, default=None)

    @property
    def of_connections(self) -> list[StoryOpinion]:
        """Those of connections without a session that have findings."""
        places = (place for place, (story, _, findings) in enumerate(self._told) if not story.numbers and findings)
        return [self[place] for place in places]

    @cached_property
    def labels(self) -> list[str]:
        """The label of each: see :attr:`History.label`."""
        return [label for _, label, _ in self._told]

    @property
    def all(self) -> list[Story]:
        """Each without its diagnosis."""
        return [story for story, _, _ in self._told]

    @cached_property
    def numbers(self) -> list[tuple[int, ...]]:
        """The sessions of each, by number."""
        return [story.numbers for story in self.all]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """What the headline of each says, without its sentences."""
        return [self._verdict(place, story, findings) for place, (story, _, findings) in enumerate(self._told)]

    def _verdict(self, place: int, story: Story, findings: Sequence[Finding]) -> Verdict:
        members = self._members(story)
        busy_ns, worst = sum(each.jobs_ns for each in members), _worst(members)
        limiter = worst.limiter if worst else None
        lead = headline.broke(findings) or (None if worst else next(iter(findings), None))
        if lead:
            return headline.verdict_of(lead, place, limiter, busy_ns)
        if worst:
            is_same = (worst.number, worst.jobs_ns) == (place, busy_ns)
            return worst if is_same else replace(worst, number=place, jobs_ns=busy_ns)
        return Verdict(place, headline.NONE, "unknown", "info", None, None, busy_ns)

    def luns_of(self, place: int) -> tuple[int, ...]:
        """The logical units that have the problem of a story; empty where there is none, or where it is not of them."""
        verdict = self.verdicts[place]
        if verdict.kind != "problem" or verdict.is_failure:
            return verdict.luns
        return self[place].headline.luns

    def _members(self, story: Story) -> list[Verdict]:
        verdicts = self._opinions.verdicts
        return [verdicts[number] for number in story.numbers if number in verdicts]

    @overload
    def __getitem__(self, place: int) -> StoryOpinion: ...

    @overload
    def __getitem__(self, place: slice) -> list[StoryOpinion]: ...

    def __getitem__(self, place: int | slice) -> StoryOpinion | list[StoryOpinion]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        story, label, findings = self._told[place]
        time = added(time for number in story.numbers if (time := self._opinions.times.get(number)))
        return StoryOpinion(story, label, self._headline(story, label, findings), findings, time)

    def _headline(self, story: Story, label: str, findings: Sequence[Finding]) -> Headline:
        """Of what broke, else of its session with the longest busy time."""
        if lead := headline.broke(findings):
            return headline.of_finding(lead)
        if worst := _worst(self._members(story)):
            return self._opinions[worst.number].headline
        note = next(iter(findings), None)
        return headline.of_finding(note) if note else Headline(f"{capital(label)}: no iSCSI commands.")

    def __len__(self) -> int:
        return len(self._told)


def _worst(members: Sequence[Verdict]) -> Verdict | None:
    return max(members, key=lambda each: each.weight, default=None)
