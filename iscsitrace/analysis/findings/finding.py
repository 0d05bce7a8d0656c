"""Problems and findings: a problem is declared once, a finding is one problem of one session or connection.

A problem is one object: meaning, condition, evidence, the part of the time that it explains, scope, advice with its
what-ifs, and the function that observes it. Settings are spelled as their programs spell them: open-iscsi's ``node.``,
LIO's through ``targetcli``, sysctl's ``net.``, those of a Linux block device ``/sys/block/DEVICE/queue``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.analysis.findings.thresholds import SHOWN_FRAMES, WARNING
from iscsitrace.analysis.measures.selection import frames_filter
from iscsitrace.analysis.session.workload import MOST
from iscsitrace.wording.sentences import sentence

if TYPE_CHECKING:
    from iscsitrace.analysis.findings.case import Case
    from iscsitrace.analysis.session.measurement import Measured
from iscsitrace.analysis.session.situation import Situation

SEVERITIES: Final = ("info", "warning", "data_loss", "error")
"""As for counters: a note; costs much time; missing from the capture; a failure."""


@dataclass(frozen=True)
class Change:
    """One change of a what-if."""

    words: str
    """Such as ``queue depth 8``."""
    apply: Callable[[Situation], Situation]
    """The situation with this change."""


@dataclass(frozen=True)
class Basis:
    """Input of a what-if: the finding, and its session as measured for the model."""

    case: Case
    measured: Measured
    finding: Finding


@dataclass(frozen=True)
class Advice:
    """One fix, with its what-if."""

    text: str
    what_if: Callable[[Basis], Iterator[Change]] | None = None
    """The changes to predict, the smallest first; None where the model cannot predict the fix."""
    is_tried_first: bool = False
    """Whether its gains come first in the list of gains."""


@dataclass(frozen=True)
class Explains:
    """The part of the time breakdown that a problem causes."""

    part: str
    specificity: int = 0
    """The headline prefers the most specific problem of a part."""


@dataclass(frozen=True)
class Observation:
    """A problem as observed in one session or connection."""

    text: str
    """The facts with their numbers, as a sentence without its first capital and full stop."""
    frames: Iterable[int | None]
    """Frames that show it, the clearest first."""
    cost_ns: float | None = None
    """The time that it costs; None where this is unknown."""
    share: float | None = None
    """Instead of the cost, where it is not a share of the busy time."""
    severity: str | None = None
    """Instead of the problem's severity."""
    cause: str | None = None
    """The sentence for the headline, where it is not the text."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A known problem, and how to find it."""

    name: str
    meaning: str
    condition: str
    """When it is reported, in words."""
    evidence: str
    """Which frames the finding shows, and what its share means."""
    advice: tuple[Advice, ...]
    observe: Callable[[Case], Observation | None]
    explains: Explains | None = None
    """None where it explains no part."""
    severity: str | None = None
    """None where the share decides."""
    is_session_only: bool = False
    """Whether it compares the connections of a session, or sessions."""
    accounts_for: tuple[Problem, ...] = ()
    """Problems that are consequences of this one: not reported where this one has at least half of their share."""

    def find(self, case: Case) -> Finding | None:
        """The finding, or None where the session or connection does not have the problem."""
        if self.is_session_only and not case.subject.is_session:
            return None
        seen = self.observe(case)
        if seen is None:
            return None
        share = seen.share
        if seen.cost_ns is not None:
            share = case.subject.share(seen.cost_ns)
        severity = seen.severity or self.severity or ("warning" if (share or 0) >= WARNING else "info")
        cause = seen.cause or sentence(seen.text)
        return Finding(self, severity, share, seen.text, shown(seen.frames), seen.cost_ns, cause)


GAIN_MAX: Final = 20.0
"""Larger gains are not believed: so far from what was measured, something else limits first."""


@dataclass(frozen=True)
class Gain:
    """The throughput that the model predicts for a change."""

    advice: Advice
    change: str
    """Such as ``queue depth 8``."""
    throughput_factor: float
    """Throughput after / before."""
    low: float
    high: float
    """The range that the packets leave open."""

    @property
    def is_more(self) -> bool:
        """Whether it is beyond what is believed: there is only that bound to show."""
        return self.throughput_factor > GAIN_MAX


@dataclass(frozen=True)
class Finding:
    """One problem of one session or connection."""

    problem: Problem
    severity: str
    share: float | None
    """Share of the busy time; None where it has none."""
    text: str
    """The facts with their numbers."""
    frames: tuple[int, ...]
    """A few frames that show it, ascending."""
    cost_ns: float | None = None
    """The time that it costs; None where this is unknown."""
    cause: str = ""
    """The sentence for the headline."""
    gains: tuple[Gain, ...] = ()
    """Gains of the advice; empty where the model predicts none."""

    @property
    def name(self) -> str:
        """The name of the problem."""
        return self.problem.name

    @property
    def advice(self) -> tuple[str, ...]:
        """The texts of the advice, the first step first."""
        return tuple(advice.text for advice in self.problem.advice)

    def gains_by_advice(self) -> list[tuple[Advice, list[Gain]]]:
        """Each advice with its gains."""
        return [(advice, [gain for gain in self.gains if gain.advice is advice]) for advice in self.problem.advice]

    def is_explained_by(self, other: Finding) -> bool:
        """Whether it is mostly a consequence of the other."""
        return self.problem in other.problem.accounts_for and (other.share or 0.0) >= MOST * (self.share or 0.0)

    @property
    def display_filter(self) -> str | None:
        """A Wireshark display filter for the frames; None without frames."""
        return frames_filter(self.frames) if self.frames else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ``gain`` is the first of ``gains``, null where there is none. No factor is above GAIN_MAX."""
        gains = [
            {
                "change": gain.change,
                "throughput_factor": min(gain.throughput_factor, GAIN_MAX),
                "low": min(gain.low, GAIN_MAX),
                "high": min(gain.high, GAIN_MAX),
                "is_more": gain.is_more,
                "advice": self.problem.advice.index(gain.advice),
            }
            for gain in self.gains
        ]
        return {
            "name": self.name,
            "severity": self.severity,
            "share": self.share,
            "text": self.text,
            "frames": list(self.frames),
            "display_filter": self.display_filter,
            "advice": " ".join(self.advice),
            "gain": gains[0] if gains else None,
            "gains": gains,
        }


def shown(frames: Iterable[int | None]) -> tuple[int, ...]:
    """The first few frames, each once, ascending."""
    known = [int(frame) for frame in frames if frame is not None]
    return tuple(sorted(dict.fromkeys(known[:SHOWN_FRAMES])))


def by_weight(findings: Sequence[Finding]) -> list[Finding]:
    """Sort: failures first, then by share; findings of equal share keep their order."""
    return sorted(findings, key=lambda finding: (finding.severity != "error", -(finding.share or 0.0)))
