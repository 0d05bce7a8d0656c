"""The tasks of a tap: which captures are new, in which order, and how many of them one task reads.

Reads listings and first packets; writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from iscsitrace.fleet import history
from iscsitrace.fleet.captures import Capture, Tap, in_order, listed
from iscsitrace.fleet.history import CaptureRow, TapHistory
from iscsitrace.fleet.rows import DAY_NS, day_name
from iscsitrace.fleet.store import Manifest, TapStore

TASK_BYTES: Final = 1 << 30
"""Captures of a task: a second or two of work, so that a lost worker costs little and a commit is rare."""
TASK_CAPTURES: Final = 1000
_COMPRESSED: Final = (".gz", ".zst", ".lz4")
_PACKED: Final = 16
"""Bytes of packets in a byte of a compressed capture, at most: payload is zero or cut away, and headers are alike."""


@dataclass(frozen=True)
class Work:
    """What one task has to do."""

    captures: tuple[Capture, ...]
    is_last: bool
    """Whether the tap has no further captures now: its last one may still grow."""
    rewinds: bool = False
    """Whether the last capture of the run before has grown, and is read again."""

    @property
    def size_bytes(self) -> int:
        """Size of the files."""
        return sum(each.size_bytes for each in self.captures)


@dataclass(frozen=True)
class TapPlan:
    """What there is to do for one tap."""

    tap: str
    works: tuple[Work, ...]
    known_count: int
    """Captures that were read before."""
    changed: tuple[str, ...]
    """Captures that have changed since, though others follow them."""


@dataclass(frozen=True)
class Destination:
    """Where a task writes, and how."""

    dataset: Path
    run: str
    tables: tuple[str, ...]
    version: str
    task_bytes: int = TASK_BYTES
    """Captures of a task, at most, unless it has one."""


def plan(place: Destination, tap: Tap) -> TapPlan:
    """The new captures of a tap, in order, as tasks. Reads listings and first packets."""
    manifest = TapStore(place.dataset, tap.name).manifest()
    entries = TapHistory(place.dataset, tap.name).entries
    last = manifest.last if manifest else None
    new, changed = [], []
    captures = listed(tap.sources)
    for each in captures:
        before = entries.get(each.name)
        if before is None or (last and each.name == last[0] and each.version != last):
            new.append(each)
        elif before.known.version != each.version:
            changed.append(each.name)
    new = _told_late(new, entries, manifest)
    new = [each for each in new if not _is_pruned(each, manifest)]
    rewinds = last is not None and any(each.name == last[0] for each in new)
    # what comes late is only listed: it is no part of the stream, and no last capture
    new.sort(key=lambda each: each.status != history.LATE)
    return TapPlan(tap.name, _works(place, new, manifest, rewinds=rewinds), len(captures) - len(new), tuple(changed))


def _told_late(new: list[Capture], entries: Mapping[str, CaptureRow], manifest: Manifest | None) -> list[Capture]:
    """New captures in order; late is one that has its place before one that was read."""
    names = {each.name for each in new}
    known = {name: entry.known for name, entry in entries.items()}
    # the new ones are one stream with those before: numbers of a ring tell more than times that are nearly the same
    ordered = in_order([*new, *(each for name, each in known.items() if name not in names)], known)
    read = [place for place, each in enumerate(ordered) if each.name in entries and entries[each.name].frame_count]
    from_ns = manifest.read_to_ns if manifest else None
    # what a prune has forgotten has a time only
    is_remembered = any(known[ordered[place].name].first_ns == from_ns for place in read)
    last = manifest.last[0] if manifest and manifest.last else None

    def is_late(place: int, each: Capture) -> bool:
        if from_ns is None or each.name == last:
            return False
        return place < max(read, default=0) or (each.order[0] < from_ns and not is_remembered)

    return [
        replace(each, status=history.LATE, problem=history.STATUSES[history.LATE]) if is_late(place, each) else each
        for place, each in enumerate(ordered)
        if each.name in names
    ]


def _is_pruned(capture: Capture, manifest: Manifest | None) -> bool:
    return (
        manifest is not None
        and capture.status == history.LATE
        and day_name(capture.order[0] // DAY_NS) < manifest.pruned_before
    )


def _works(
    place: Destination, captures: list[Capture], manifest: Manifest | None, *, rewinds: bool
) -> tuple[Work, ...]:
    if not captures and (manifest is None or manifest.is_ended):
        return ()
    groups: list[list[Capture]] = [[]]
    for each in captures:
        group = groups[-1]
        size = sum(_read_bytes(other) for other in [*group, each])
        if group and (size > place.task_bytes or len(group) == TASK_CAPTURES):
            groups.append([])
        groups[-1].append(each)
    return tuple(
        Work(tuple(group), is_last=group is groups[-1], rewinds=rewinds and group is groups[0]) for group in groups
    )


def _read_bytes(capture: Capture) -> int:
    """How much a pass may read of a capture."""
    return capture.size_bytes * (_PACKED if capture.name.lower().endswith(_COMPRESSED) else 1)
