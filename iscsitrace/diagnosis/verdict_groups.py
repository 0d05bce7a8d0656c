"""The verdicts of many sessions in groups: by initiator, target, LUN, volume or hour, the worst first.

Sessions that took each other's place count as the one story that they are, so that no time is lost twice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from iscsitrace.diagnosis import belonging
from iscsitrace.diagnosis.belonging import StoryShare
from iscsitrace.diagnosis.headline import Verdict
from iscsitrace.diagnosis.opinions import Stories
from iscsitrace.tables.table import Source

ELSEWHERE: Final = "elsewhere"
"""The headline of a session in an hour, or at a LUN, that its problem did not hit."""


class Tally(NamedTuple):
    """Equal verdicts."""

    name: str
    """Of the headline."""
    limiter: str | None
    session_count: int


@dataclass
class Group:
    """The sessions with one value."""

    label: str
    host: str | None = None
    """The initiator, of a volume."""
    lost_ns: float = 0.0
    busy_ns: float = 0.0
    session_count: int = 0
    worst: str = ""
    """The label of what broke, or else of what lost the most time."""
    _weight: tuple[bool, float, float] = field(default=(False, -1.0, 0.0), repr=False)
    _counts: dict[tuple[str, str | None], int] = field(default_factory=dict, repr=False)

    @property
    def tallies(self) -> list[Tally]:
        """The verdicts with the sessions that have them, the most frequent first."""
        found = [Tally(*said, count) for said, count in self._counts.items()]
        return sorted(found, key=lambda each: -each.session_count)

    def add(self, verdict: Verdict, part: StoryShare, label: str, count: int) -> None:
        """Adds the part of a story that is in this group; ``count`` are its sessions."""
        lost_ns = (verdict.cost_ns or 0.0) * part.lost
        self.lost_ns += lost_ns
        self.busy_ns += part.busy_ns
        self.session_count += count
        said = (verdict.name, verdict.limiter) if part.lost else (ELSEWHERE, None)
        # connections that never became a session count as one
        self._counts[said] = self._counts.get(said, 0) + max(count, 1)
        weight = verdict.is_failure and part.lost > 0, lost_ns, part.busy_ns
        if weight > self._weight:
            self._weight, self.worst = weight, label

    @property
    def weight(self) -> tuple[bool, float, float]:
        """How bad it is: whether something broke, time lost, busy time."""
        return self._weight[0], self.lost_ns, self.busy_ns

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "label": self.label,
            **({} if self.host is None else {"initiator": self.host}),
            "session_count": self.session_count,
            "headlines": [each._asdict() for each in self.tallies],
            "lost_ns": round(self.lost_ns),
            "busy_ns": round(self.busy_ns),
            "worst": self.worst,
        }


@dataclass(frozen=True)
class VerdictGroups:
    """The groups by one attribute."""

    name: str
    groups: list[Group]
    """The worst first: what broke, then by time lost."""
    has_shared: bool
    """Whether a session counts in several of them, each time with all its time."""
    absent_count: int
    """Sessions in none of them."""


def find(name: str, source: Source, stories: Stories, sessions: Collection[int] = ()) -> VerdictGroups:
    """The verdicts by one of belonging.NAMES; only those of ``sessions``, where any are named."""
    wanted, found = {*sessions}, dict[int | str, Group]()
    parts_of = belonging.find(name, source, stories)
    has_shared, absent_count = False, 0
    for place, numbers in enumerate(stories.numbers):
        if wanted and wanted.isdisjoint(numbers):
            continue
        parts = parts_of.parts[place]
        has_shared |= len(parts) > 1
        absent_count += 0 if parts else max(len(numbers), 1)
        for part in parts:
            if part.key not in found:
                label = parts_of.labels.get(part.key, str(part.key))
                found[part.key] = Group(label, parts_of.hosts.get(part.key))
            found[part.key].add(stories.verdicts[place], part, stories.labels[place], len(numbers))
    ordered = sorted(found.values(), key=lambda each: each.weight, reverse=True)
    return VerdictGroups(name, ordered, has_shared, absent_count)
