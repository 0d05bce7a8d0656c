"""Connections and sessions that are used together: whether they carry alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iscsitrace.analysis.diagnosis import wording
from iscsitrace.analysis.diagnosis.finding import Finding
from iscsitrace.analysis.diagnosis.subject import Subject
from iscsitrace.analysis.diagnosis.thresholds import TOGETHER, UNEVEN
from iscsitrace.analysis.intervals import union_length


@dataclass(frozen=True)
class _Load:
    """What one connection carried."""

    subject: Subject
    bytes: int
    busy_ns: int
    start_ns: int
    end_ns: int

    def overlap_ns(self, other: _Load) -> int:
        """How long both were at work."""
        return min(self.end_ns, other.end_ns) - max(self.start_ns, other.start_ns)


def find(subject: Subject, connections: Sequence[Subject]) -> list[Finding]:
    """uneven_connections: of a session, among the connections that are used together with its own."""
    loads = [load for load in map(_load, connections) if load is not None]
    if len(loads) < 2:
        return []
    longest = max(loads, key=lambda load: load.end_ns - load.start_ns)
    together = [load for load in loads if load.overlap_ns(longest) >= TOGETHER * max(load.end_ns - load.start_ns, 1)]
    if len(together) < 2:
        return []
    by_bytes, by_time = [load.bytes for load in together], [load.busy_ns for load in together]
    lost_bytes, lost_time = (1 - sum(amounts) / len(amounts) / max(amounts) for amounts in (by_bytes, by_time))
    if max(lost_bytes, lost_time) < UNEVEN:
        return []
    if lost_time >= lost_bytes:
        most, least = max(together, key=lambda load: load.busy_ns), min(together, key=lambda load: load.busy_ns)
        text = f"was at work for {wording.time(most.busy_ns)}, {least.subject.label} for {wording.time(least.busy_ns)}"
    else:
        most, least = max(together, key=lambda load: load.bytes), min(together, key=lambda load: load.bytes)
        text = f"carried {most.bytes / 1e6:.1f} MB, {least.subject.label} {least.bytes / 1e6:.1f} MB at the same time"
    frames = [frame for load in (most, least) for frame in load.subject.frames_of([len(load.subject.cycles) - 1])]
    share = max(lost_bytes, lost_time)
    found = subject.finding("uneven_connections", None, f"{most.subject.label} {text}", frames, "warning")
    return [Finding(found.name, found.severity, share, found.text, found.frames)]


def _load(subject: Subject) -> _Load | None:
    cycles = subject.transfers
    if not len(cycles):
        return None
    starts, ends = cycles.raw("command_first_ns"), cycles.raw("status_ns")
    moved = int(cycles.raw("data_bytes").astype("int64").sum())
    return _Load(subject, moved, union_length(starts, ends), int(starts.min()), int(ends.max()))
