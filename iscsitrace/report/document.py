"""A report as plain data: text and numbers, without markup.

Any text may come from a capture; the renderings escape it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from iscsitrace.show.document import Grid, Section
from iscsitrace.wording import amounts
from iscsitrace.wording.sentences import capital

_SPELLED: Final = {"io": "I/O", "r2t": "R2T", "nop": "NOP", "mtu": "MTU", "lun": "LUN", "ack": "ACK", "ats": "ATS"}
FIRST_FINDINGS: Final = 2
"""Findings shown beside the headline; the others follow later."""


@dataclass(frozen=True)
class Fact:
    """A key figure."""

    name: str
    value: str
    meaning: str = ""


@dataclass(frozen=True)
class Part:
    """One part of the time breakdown, as a segment of its bar."""

    name: str
    meaning: str
    share: float
    time: str
    color: str
    is_limiter: bool = False

    @property
    def percent(self) -> str:
        """The share as text."""
        return amounts.percent(self.share)


@dataclass(frozen=True)
class Step:
    """One change to make."""

    advice: str
    gain: str = ""
    """The gain that the model predicts; empty if it predicts none."""


@dataclass(frozen=True)
class FoundProblem:
    """A finding as text, with its advice."""

    name: str
    severity: str
    cost: str
    """Such as ``41 % of the time``, ``14.1 s lost``; empty where it is unknown."""
    text: str
    steps: tuple[Step, ...]
    display_filter: str = ""
    is_failure: bool = False
    """Whether something broke."""
    is_problem: bool = False
    """Whether something is wrong that a person has to read first."""
    is_leading: bool = False
    """Whether the headline is of it."""

    @property
    def title(self) -> str:
        """The name as words: ``Queue depth low``, ``I/O outage``."""
        return capital(" ".join(_SPELLED.get(word, word) for word in self.name.split("_")))


@dataclass(frozen=True)
class Chapter:
    """One session or connection: its headline, time breakdown and findings."""

    label: str
    peers: str
    """Names and addresses of initiator and target."""
    headline: str
    """See :class:`iscsitrace.diagnosis.headline.Headline`."""
    facts: tuple[Fact, ...]
    parts: tuple[Part, ...]
    findings: tuple[FoundProblem, ...]
    budget: Grid | None = None
    places: tuple[Part, ...] = ()
    """The time of its reads and writes by place; empty without several taps."""
    failure: tuple[Fact, ...] = ()
    """When it broke, what that cost and hit, whose side it points to; empty where nothing broke."""

    @property
    def question(self) -> str:
        """What its headline answers."""
        return f"What happened to {self.label}" if self.failure else f"What limits {self.label}"

    @property
    def lines(self) -> tuple[str, str]:
        """The first sentence of the headline, and the others."""
        first, stop, rest = self.headline.partition(". ")
        return first + stop.strip(), rest

    @property
    def first_findings(self) -> tuple[FoundProblem, ...]:
        """What has to be done something about: the finding of the headline, then other problems; where something broke,
        only what did.
        """
        found = [each for each in self.findings if each.is_leading or each.is_problem]
        found.sort(key=lambda each: not each.is_leading)
        return tuple([each for each in found if each.is_failure or not self.failure][:FIRST_FINDINGS])


@dataclass(frozen=True)
class Picture:
    """A plot in the page."""

    name: str
    """A short name for its tab."""
    title: str
    how_to_read: str
    notes: tuple[str, ...]
    svg: str
    axes: list[dict[str, Any]]


@dataclass(frozen=True)
class HeatCell:
    """A volume in a bin of time."""

    kind: str
    """Class of its color: ``h1`` and so on by latency, ``out``, or empty where there is nothing."""
    text: str


@dataclass(frozen=True)
class HeatRow:
    """A volume."""

    label: str
    host: str
    """The initiator."""
    outage: str
    """Seconds."""
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True)
class HeatMap:
    """Volumes over time, the worst first."""

    times: tuple[str, str, str]
    """When it begins, its middle and its end, since the start of the capture."""
    width: str
    """Of a bin."""
    legend: tuple[tuple[str, str], ...]
    """Class and meaning of each color."""
    rows: tuple[HeatRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ByPlace:
    """What the captures of several taps show together."""

    section: Section
    findings: tuple[FoundProblem, ...]
    """Problems with their places."""
    pictures: tuple[Picture, ...]
    pictures_left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """The fitted model, and its predictions."""

    sentence: str
    parameters: Grid
    legs: Grid | None
    residuals: Grid | None
    what_if: Grid | None
    undetermined: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment."""

    verdict: str
    caveats: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Document:
    """A whole report, in order."""

    title: str
    subtitle: str
    lead: Chapter | None
    """The chapter on the main session; None without a session, and for an experiment."""
    others: Grid | None
    """The other sessions and connections, one row each."""
    heat: HeatMap | None = None
    """Volumes over time; None of fewer than two."""
    groups: Section | None = None
    """Verdicts in groups, where some were asked for."""
    places: ByPlace | None = None
    """Right after the verdict; None without several taps."""
    chapters: tuple[Chapter, ...] = ()
    """The other sessions that are shown in full."""
    pictures: tuple[Picture, ...] = ()
    pictures_left_out: tuple[str, ...] = ()
    """Why other pictures are missing."""
    sections: tuple[Section, ...] = ()
    """The sections after the plots."""
    model: Model | None = None
    model_missing: str = ""
    """Why there is no model."""
    outcome: Outcome | None = None
    """The result of an experiment, instead of a session."""
    timeline: tuple[Picture, ...] = ()
    """What happened, where something broke: for a wide page, and for a narrow one."""
    style_sheet: str = field(default="", repr=False)
    """The styles of the pictures."""

    @property
    def headline(self) -> str:
        """The verdict."""
        if self.outcome:
            return self.outcome.verdict
        return self.lead.headline if self.lead else "no iSCSI session was found"

    @property
    def contents(self) -> tuple[tuple[str, str], ...]:
        """Anchor and title of everything below the verdict, in order."""
        found = [(self.places.section.identity, self.places.section.title)] if self.places else []
        found += [(self.groups.identity, self.groups.title)] if self.groups else []
        found += [("heat", "Volumes over time")] if self.heat else []
        found += [("others", "Other sessions")] if self.others else []
        found += [("findings", "Findings")] if self.lead else []
        found += [("plots", "Plots")] if self.pictures else []
        found += [("model", "Model")] if self.model or self.model_missing else []
        return (*found, *((section.identity, section.title) for section in self.sections))
