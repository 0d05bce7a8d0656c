"""A finding: a known disease, what it costs, and the frames that show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iscsitrace.analysis.findings.diseases import DISEASES, NAMES
from iscsitrace.analysis.findings.thresholds import SHOWN_FRAMES

SEVERITIES: Final = ("info", "warning", "data_loss", "error")
"""The words of the counters: a note; costs much; the capture lost it; something failed."""


@dataclass(frozen=True)
class Gain:
    """What a change would do to the throughput, by the model."""

    advice: int
    """Place of the advice that says how, among those of the finding."""
    change: str
    """Such as ``queue depth 8``."""
    throughput_factor: float
    """Throughput after / before."""
    low: float
    high: float
    """The least and the most that the packets leave open."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "change": self.change,
            "throughput_factor": self.throughput_factor,
            "low": self.low,
            "high": self.high,
            "advice": self.advice,
        }


@dataclass(frozen=True)
class Finding:
    """One disease of one session or connection."""

    name: str
    severity: str
    share: float | None
    """Of the time from first command to last status; None when it costs no time, or none that is known."""
    text: str
    """What was seen, with its numbers, in a sentence."""
    frames: tuple[int, ...]
    """A few frames that show it at its clearest, ascending."""
    gains: tuple[Gain, ...] = ()
    """What following the advice would win, the first step first; empty where no model can say."""

    @property
    def advice(self) -> tuple[str, ...]:
        """What a person can change, the first step first."""
        return DISEASES[self.name].advice

    @property
    def display_filter(self) -> str | None:
        """A Wireshark display filter that shows the frames; None when there are none."""
        return f"frame.number in {{{', '.join(map(str, self.frames))}}}" if self.frames else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ``gain`` is the first of ``gains``, null where no model can say what a change would win."""
        return {
            "name": self.name,
            "severity": self.severity,
            "share": self.share,
            "text": self.text,
            "frames": list(self.frames),
            "display_filter": self.display_filter,
            "advice": " ".join(self.advice),
            "gain": self.gains[0].as_dict() if self.gains else None,
            "gains": [gain.as_dict() for gain in self.gains],
        }


def shown(frames: Iterable[int | None]) -> tuple[int, ...]:
    """The first few frames, each once, ascending."""
    known = [int(frame) for frame in frames if frame is not None]
    return tuple(sorted(dict.fromkeys(known[:SHOWN_FRAMES])))


def by_weight(findings: Sequence[Finding]) -> list[Finding]:
    """Failures first, then by what they cost, then as the docs have them."""
    return sorted(
        findings, key=lambda finding: (finding.severity != "error", -(finding.share or 0.0), NAMES.index(finding.name))
    )
