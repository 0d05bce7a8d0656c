"""What a report says, as plain data: no tables of a trace, no figures, no markup.

Every text in it may hold what a capture made up, and is shown as text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from iscsitrace.outputs.document import Grid, Section
from iscsitrace.wording import amounts

FIRST_FINDINGS: Final = 3
"""Findings shown beside the headline; the others follow later."""


@dataclass(frozen=True)
class Fact:
    """A figure that belongs to the first look."""

    name: str
    value: str
    meaning: str = ""


@dataclass(frozen=True)
class Part:
    """A stretch of the budget bar."""

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
    """One thing to change."""

    advice: str
    gain: str = ""
    """What the model predicts for it; empty where it predicts nothing."""


@dataclass(frozen=True)
class FoundProblem:
    """A finding as text, with its advice."""

    name: str
    severity: str
    share: str
    text: str
    steps: tuple[Step, ...]
    display_filter: str = ""

    @property
    def title(self) -> str:
        """The name as words: ``Queue depth low``."""
        return self.name.replace("_", " ").replace("r2t", "R2T").capitalize().replace("r2t", "R2T")


@dataclass(frozen=True)
class Chapter:
    """One session or connection: its headline, time breakdown and findings."""

    label: str
    peers: str
    """Who talked to whom."""
    headline: str
    """What limits it, and the cause."""
    notes: str
    """Another large part of the time, excluded idle gaps, and whether the commands are too few."""
    facts: tuple[Fact, ...]
    parts: tuple[Part, ...]
    findings: tuple[FoundProblem, ...]
    budget: Grid | None = None

    @property
    def verdict(self) -> str:
        """The headline with its notes."""
        return f"{self.headline} {self.notes}".strip()

    @property
    def first_findings(self) -> tuple[FoundProblem, ...]:
        """The first findings: failures, then the largest shares."""
        return self.findings[:FIRST_FINDINGS]


@dataclass(frozen=True)
class Picture:
    """A plot within the page."""

    name: str
    """Short, for its tab."""
    title: str
    how_to_read: str
    notes: tuple[str, ...]
    svg: str
    axes: list[dict[str, Any]]


@dataclass(frozen=True)
class Model:
    """The fit, and what follows from it."""

    sentence: str
    parameters: Grid
    legs: Grid | None
    residuals: Grid | None
    what_if: Grid | None
    undetermined: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What an experiment showed, before all else."""

    verdict: str
    caveats: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Document:
    """A whole report, in its order."""

    title: str
    subtitle: str
    lead: Chapter | None
    """What the report is about first of all; None where there is no session, and of an experiment."""
    others: Grid | None
    """The other sessions and connections, a line each."""
    chapters: tuple[Chapter, ...] = ()
    """Those of them that are shown in full, too."""
    pictures: tuple[Picture, ...] = ()
    pictures_left_out: tuple[str, ...] = ()
    """Why others are not there."""
    sections: tuple[Section, ...] = ()
    """Everything that follows the plots."""
    model: Model | None = None
    model_missing: str = ""
    """Why there is no model, where there is none."""
    outcome: Outcome | None = None
    """Of an experiment, in the place of the session."""
    style_sheet: str = field(default="", repr=False)
    """The looks of the pictures."""

    @property
    def headline(self) -> str:
        """Its verdict in a sentence."""
        if self.outcome:
            return self.outcome.verdict
        return self.lead.verdict if self.lead else "no iSCSI session was found"

    @property
    def contents(self) -> tuple[tuple[str, str], ...]:
        """What stands below the verdict, in order: where it is, and its title."""
        found = [("others", "Other sessions")] if self.others else []
        found += [("findings", "Findings")] if self.lead else []
        found += [("plots", "Plots")] if self.pictures else []
        found += [("model", "Model")] if self.model or self.model_missing else []
        return (*found, *((section.identity, section.title) for section in self.sections))
