"""Two sessions compared by place: what the network, the target and the initiator's host take of a command's latency.

Both sides need captures of the same traffic at two taps or more; a difference is B less A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps import places
from iscsitrace.taps.places import PLACES, Place, PlaceFinding, TimePlaces
from iscsitrace.taps.reading import TappedTables


@dataclass(frozen=True)
class ByPlace:
    """The places of two sessions, A and B."""

    a: TimePlaces
    b: TimePlaces
    findings: dict[str, list[PlaceFinding]]
    """By ``a`` and ``b``: the problems with a place, of the network or of this session."""

    @property
    def latency_ns(self) -> int:
        """Difference of the median latencies."""
        return self.b.latency_ns - self.a.latency_ns

    @property
    def parts_ns(self) -> dict[Place, int]:
        """Difference of each part; they add up to that of the median latencies."""
        return {place: self.b.parts_ns[place] - self.a.parts_ns[place] for place in PLACES}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "a": self.a.as_dict(),
            "b": self.b.as_dict(),
            "latency_ns": self.latency_ns,
            "parts_ns": self.parts_ns,
            "findings": {name: [each.as_dict() for each in found] for name, found in self.findings.items()},
        }


def compare(trace_a: TraceTables, trace_b: TraceTables, session_a: int, session_b: int) -> ByPlace | None:
    """The comparison; None unless both traces are of several taps, and both sessions have reads or writes with legs."""
    found = [_of_session(trace, session) for trace, session in ((trace_a, session_a), (trace_b, session_b))]
    (a, findings_a), (b, findings_b) = found
    return ByPlace(a, b, {"a": findings_a, "b": findings_b}) if a and b else None


def _of_session(trace: TraceTables, session: int) -> tuple[TimePlaces | None, list[PlaceFinding]]:
    if not isinstance(trace, TappedTables):
        return None, []
    verdict = next((each for each in places.verdicts(trace) if each.session == session), None)
    return verdict, [each for each in places.findings(trace) if not each.sessions or session in each.sessions]
