"""A problem as it is declared, with its advice and what each would win; and a finding: a problem that was found.

A problem is one object: what it means, from when on it is found, what shows it, which part of the time it explains,
what a person can change, and the function that finds it. Keys are spelled as their owners do: open-iscsi's in
``node.``, LIO's through ``targetcli``, sysctl's in ``net.``, those of a Linux block device in
``/sys/block/DEVICE/queue``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.analysis.findings.thresholds import SHOWN_FRAMES, WARNING
from iscsitrace.analysis.session.workload import MOST

if TYPE_CHECKING:
    from iscsitrace.analysis.findings.case import Case
    from iscsitrace.analysis.session.measurement import Measured
from iscsitrace.analysis.session.situation import Situation

SEVERITIES: Final = ("info", "warning", "data_loss", "error")
"""The words of the counters: a note; costs much; the capture lost it; something failed."""


@dataclass(frozen=True)
class Change:
    """One thing that is changed in a what-if."""

    words: str
    """Such as ``queue depth 8``."""
    apply: Callable[[Situation], Situation]
    """What it makes of a situation."""


@dataclass(frozen=True)
class Basis:
    """What a what-if starts from: the finding, and its session as the model takes it."""

    case: Case
    measured: Measured
    finding: Finding


@dataclass(frozen=True)
class Advice:
    """What a person can change."""

    text: str
    what_if: Callable[[Basis], Iterator[Change]] | None = None
    """The changes that the model is asked about, the least first; None where no model can say."""
    is_tried_first: bool = False
    """Whether its gains come before those of the advice before it."""


@dataclass(frozen=True)
class Explains:
    """The part of the time that a problem is a cause of."""

    part: str
    specificity: int = 0
    """The most specific problem of those that explain a part is named as its cause."""


@dataclass(frozen=True)
class Observation:
    """What was seen of a problem in one session or connection."""

    text: str
    """With its numbers, in a sentence."""
    frames: Iterable[int | None]
    """Frames that show it, the clearest first."""
    cost_ns: float | None = None
    """The time that it takes; None when it costs no time, or none that is known."""
    share: float | None = None
    """In its place, where it is not a share of the jobs' time."""
    severity: str | None = None
    """In place of that of the problem."""
    cause: str | None = None
    """What the headline says of it, where that is not the text."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A known problem: all there is to say of it, and how it is found."""

    name: str
    meaning: str
    condition: str
    """From when on it is found, in words."""
    evidence: str
    """Which frames it shows, and what its share counts."""
    advice: tuple[Advice, ...]
    observe: Callable[[Case], Observation | None]
    explains: Explains | None = None
    """None where its time is no part of the budget, or nobody's."""
    severity: str | None = None
    """None where it follows from the share."""
    is_session_only: bool = False
    """Whether it is about the connections of a session together, or about sessions together."""
    accounts_for: tuple[Problem, ...] = ()
    """Problems that are only its consequence, and no findings of their own, where it has most of their share."""

    def find(self, case: Case) -> Finding | None:
        """The finding, where the session or connection has the problem."""
        if self.is_session_only and not case.subject.is_session:
            return None
        seen = self.observe(case)
        if seen is None:
            return None
        share = seen.share
        if seen.cost_ns is not None:
            share = case.subject.share(seen.cost_ns)
        severity = seen.severity or self.severity or ("warning" if (share or 0) >= WARNING else "info")
        return Finding(self, severity, share, seen.text, shown(seen.frames), seen.cost_ns, seen.cause or seen.text)


@dataclass(frozen=True)
class Gain:
    """What a change would do to the throughput, by the model."""

    advice: Advice
    """Which says how."""
    change: str
    """Such as ``queue depth 8``."""
    throughput_factor: float
    """Throughput after / before."""
    low: float
    high: float
    """The least and the most that the packets leave open."""


@dataclass(frozen=True)
class Finding:
    """One problem of one session or connection."""

    problem: Problem
    severity: str
    share: float | None
    """Of the time from first command to last status; None when it costs no time, or none that is known."""
    text: str
    """What was seen, with its numbers, in a sentence."""
    frames: tuple[int, ...]
    """A few frames that show it at its clearest, ascending."""
    cost_ns: float | None = None
    """The time that it takes; None as for the share, and where the share is one of something else."""
    cause: str = ""
    """What the headline says of it."""
    gains: tuple[Gain, ...] = ()
    """What following the advice would win, the first step first; empty where no model can say."""

    @property
    def name(self) -> str:
        """The problem's."""
        return self.problem.name

    @property
    def advice(self) -> tuple[str, ...]:
        """What a person can change, the first step first."""
        return tuple(advice.text for advice in self.problem.advice)

    def gains_by_advice(self) -> list[tuple[Advice, list[Gain]]]:
        """Each advice with what following it would win."""
        return [(advice, [gain for gain in self.gains if gain.advice is advice]) for advice in self.problem.advice]

    def is_explained_by(self, other: Finding) -> bool:
        """Whether it is a consequence of the other, and no more."""
        return self.problem in other.problem.accounts_for and (other.share or 0.0) >= MOST * (self.share or 0.0)

    @property
    def display_filter(self) -> str | None:
        """A Wireshark display filter that shows the frames; None when there are none."""
        return f"frame.number in {{{', '.join(map(str, self.frames))}}}" if self.frames else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ``gain`` is the first of ``gains``, null where no model can say what a change would win."""
        gains = [
            {
                "change": gain.change,
                "throughput_factor": gain.throughput_factor,
                "low": gain.low,
                "high": gain.high,
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
    """Failures first, then by what they cost; of equals, the order stays."""
    return sorted(findings, key=lambda finding: (finding.severity != "error", -(finding.share or 0.0)))
