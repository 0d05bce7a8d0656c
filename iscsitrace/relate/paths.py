"""Paths to one volume: what each carried while all were in service, and the ALUA states in which it did.

Compared are only times in which the paths were in service together: what a path carried while another was lost is
failover, and no choice of the initiator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.intervals import intersection
from iscsitrace.relate.logical_units import Member
from iscsitrace.relate.service import Intervals, Service
from iscsitrace.relate.volumes import Volume, Volumes
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import rows_of_each
from iscsitrace.tables.table import Source

Array = NDArray[Any]

GRACE_NS: Final = 20_000_000_000
"""Time that an initiator has to notice that a path came back: multipath's longest interval between two checks."""

COMMON_SHARE: Final = 0.5
"""Least share of the longest service of a path for which another one is compared with it."""

OPTIMIZED, NON_OPTIMIZED = "active_optimized", "active_non_optimized"


@dataclass(frozen=True)
class PathUse:
    """One path to a volume, and what it carried while all compared paths were in service."""

    sessions: tuple[int, ...]
    """The sessions that replaced each other."""
    lun: int
    target: str
    state: str | None
    """Its last ALUA state; None where the target reported none for its group."""
    command_count: int
    bytes: int


@dataclass(frozen=True)
class PathsUse:
    """The paths to one volume that were in service together."""

    volume: Volume
    paths: tuple[PathUse, ...]
    common_ns: int
    """How long all of them were."""
    turn_count: int
    """How often the initiator went from one path to another, plus one."""
    longest_turn: int
    """The most commands in a row on one path."""
    misplaced_bytes: int
    """Carried by a non-optimized path while an optimized one had long been in service."""
    misplaced_rows: tuple[int, ...]
    """The first of these commands, as rows of ``cycles``."""
    first_rows: tuple[int, ...]
    """The first command of each path, as rows of ``cycles``."""

    @property
    def bytes(self) -> int:
        """What all paths carried."""
        return sum(path.bytes for path in self.paths)


def of_trace(source: Source, volumes: Volumes) -> list[PathsUse]:
    """The volumes of which several paths were in service together."""
    several = [volume for volume in volumes.all if len(volume.paths) > 1]
    if not several:
        return []
    cycles, service = source("cycles"), Service(source)
    numbers = np.where(cycles.each(is_data_command), volumes.of_commands(cycles), -1)
    rows = rows_of_each(numbers, [volume.number for volume in several])
    found = (_of_volume(source, service, volume, own) for volume, own in zip(several, rows, strict=True))
    return [each for each in found if each is not None]


def _of_volume(source: Source, service: Service, volume: Volume, rows: Array) -> PathsUse | None:
    every = [(path, service.available([member.session for member in path])) for path in volume.paths]
    lengths = [_length(available) for _, available in every]
    compared = [each for each, length in zip(every, lengths, strict=True) if length >= COMMON_SHARE * max(lengths)]
    if len(compared) < 2:
        return None
    common = compared[0][1]
    for _, available in compared[1:]:
        common = intersection(*common, *available)
    cycles = source("cycles")
    rows = rows[_within(common, cycles.raw("command_first_ns")[rows])]
    at_ns, moved = cycles.raw("command_first_ns")[rows], cycles.raw("data_bytes")[rows].astype(np.int64)
    place = np.full(len(rows), -1)
    for number, (path, _) in enumerate(compared):
        is_own = np.isin(cycles.raw("session")[rows], [member.session for member in path])
        place[is_own & (cycles.raw("lun")[rows] == path[0].lun)] = number
    is_compared = place >= 0
    rows, at_ns, moved, place = (each[is_compared] for each in (rows, at_ns, moved, place))
    states = [_States(source, volume, path) for path, _ in compared]
    is_misplaced = np.zeros(len(rows), dtype=bool)
    for number, state in enumerate(states):
        is_worse = (place == number) & state.are(NON_OPTIMIZED, at_ns)
        if not is_worse.any():
            continue
        others = [other for other in range(len(compared)) if other != number]
        has_better = np.zeros(len(rows), dtype=bool)
        for other in others:
            has_better |= states[other].are(OPTIMIZED, at_ns, GRACE_NS) & _settled(compared[other][1], at_ns)
        is_misplaced |= is_worse & has_better
    changes = np.flatnonzero(np.diff(place))
    turns = np.diff(np.concatenate([[0], changes + 1, [len(place)]])) if len(place) else np.zeros(0, dtype=np.intp)
    uses = [
        PathUse(
            tuple(member.session for member in path),
            path[0].lun,
            path[0].target,
            states[number].last,
            int((place == number).sum()),
            int(moved[place == number].sum()),
        )
        for number, (path, _) in enumerate(compared)
    ]
    return PathsUse(
        volume,
        tuple(uses),
        _length(common),
        len(turns),
        int(turns.max(initial=0)),
        int(moved[is_misplaced].sum()),
        tuple(rows[is_misplaced][:3].tolist()),
        tuple(int(rows[place == number][0]) for number in range(len(compared)) if (place == number).any()),
    )


class _States:
    """The ALUA states of one path over time, as any path to the same target reported them for its group."""

    def __init__(self, source: Source, volume: Volume, path: Sequence[Member]) -> None:
        table = source("alua_states")
        group = next((each.target_port_group for each in path if each.target_port_group is not None), None)
        is_own = np.zeros(len(table), dtype=bool)
        if group is not None:
            # numbers of groups are those of one target
            for member in (each for each in volume.members if each.target == path[0].target):
                is_own |= (table.raw("session") == member.session) & (table.raw("lun") == member.lun)
            is_own &= (table.raw("target_port_group") == group) & known(table, "state")
        own = table.select(is_own)
        order = np.argsort(own.raw("time_ns"), kind="stable")
        self._since_ns: Array = own.raw("time_ns")[order]
        self._words: Array = own["state"][order]

    @property
    def last(self) -> str | None:
        return str(self._words[-1]) if len(self._words) else None

    def are(self, word: str, at_ns: Array, settled_ns: int = 0) -> Array:
        """Whether the state is this one at each instant, and was for so long if it is not the first."""
        if not len(self._words):
            return np.zeros(len(at_ns), dtype=bool)
        place = np.searchsorted(self._since_ns, at_ns, side="right") - 1
        is_settled = (place <= 0) | (at_ns - self._since_ns[place] >= settled_ns)
        return np.asarray((self._words[place.clip(0)] == word) & is_settled)


def _settled(available: Intervals, at_ns: Array) -> Array:
    """Whether a path was in service at each instant, and long enough since it came back."""
    starts, ends = available
    place = np.searchsorted(starts, at_ns, side="right") - 1
    is_in_service = (place >= 0) & (at_ns < ends[place.clip(0)])
    return np.asarray(is_in_service & ((place == 0) | (at_ns - starts[place.clip(0)] >= GRACE_NS)))


def _within(intervals: Intervals, instants: Array) -> Array:
    starts, ends = intervals
    if not len(starts):
        return np.zeros(len(instants), dtype=bool)
    place = np.searchsorted(starts, instants, side="right") - 1
    return np.asarray((place >= 0) & (instants < ends[place.clip(0)]))


def _length(intervals: Intervals) -> int:
    return int((intervals[1] - intervals[0]).sum())
