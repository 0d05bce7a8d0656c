"""Paths to one volume: what each carried while all were in service, and the ALUA states in which it did.

Compared are only times in which the paths were in service together: what a path carried while another was lost is
failover, and no choice of the initiator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.intervals import intersection, merged
from iscsitrace.relate.outages import Availability, Intervals, joined
from iscsitrace.relate.volumes import Member, Volume, Volumes
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import Partition, distinct, grouped, rows_of_each, sums_of
from iscsitrace.tables.table import Array, Source, Table

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
    cycles, service, reports = source("cycles"), Availability(source), _Reports(source)
    numbers = np.where(cycles.each(is_data_command), volumes.of_commands(cycles), -1)
    rows = rows_of_each(numbers, [volume.number for volume in several])
    found = (_of_volume(cycles, service, reports, volume, own) for volume, own in zip(several, rows, strict=True))
    return [each for each in found if each is not None]


def _of_volume(cycles: Table, service: Availability, reports: _Reports, volume: Volume, rows: Array) -> PathsUse | None:
    every = [(path, service.available([member.session for member in path])) for path in volume.paths]
    lengths = [_length(available) for _, available in every]
    least_ns = COMMON_SHARE * max(lengths)
    compared = [each for each, length in zip(every, lengths, strict=True) if length >= least_ns]
    if len(compared) < 2:
        return None
    common = _common([available for _, available in compared])
    rows = rows[_within(common, cycles.raw("command_first_ns")[rows])]
    place = _paths_of(cycles, rows, [path for path, _ in compared])
    rows, place = rows[place >= 0], place[place >= 0]
    at_ns, moved = cycles.raw("command_first_ns")[rows], cycles.raw("data_bytes")[rows].astype(np.int64)
    states = reports.of_paths(volume, [path for path, _ in compared])
    has_optimized = _within(_optimized(states, [available for _, available in compared]), at_ns)
    is_misplaced = np.zeros(len(rows), dtype=bool)
    own = grouped(place)
    for number, of_path in own.items():
        # a path is not in both states at once: the optimized one is another
        is_misplaced[of_path] = states[number].are(NON_OPTIMIZED, at_ns[of_path]) & has_optimized[of_path]
    changes = np.flatnonzero(np.diff(place))
    turns = np.diff(np.concatenate([[0], changes + 1, [len(place)]])) if len(place) else np.zeros(0, dtype=np.intp)
    counts, carried = np.bincount(place, minlength=len(compared)), sums_of(place, moved, len(compared))
    uses = [
        PathUse(
            tuple(member.session for member in path),
            path[0].lun,
            path[0].target,
            states[number].last,
            int(counts[number]),
            int(carried[number]),
        )
        for number, (path, _) in enumerate(compared)
    ]
    return PathsUse(
        volume,
        tuple(uses),
        len(turns),
        int(turns.max(initial=0)),
        int(moved[is_misplaced].sum()),
        tuple(rows[is_misplaced][:3].tolist()),
        tuple(int(rows[own[number][0]]) for number in sorted(own)),
    )


def _paths_of(cycles: Table, rows: Array, paths: Sequence[Sequence[Member]]) -> Array:
    """The place of each command's path, -1 for none."""
    own = {(member.session, path[0].lun): number for number, path in enumerate(paths) for member in path}
    (sessions, session), (luns, lun) = distinct(cycles.raw("session")[rows]), distinct(cycles.raw("lun")[rows])
    pairs, which = distinct(session * max(len(luns), 1) + lun)
    known_ones = [own.get((int(sessions[pair // len(luns)]), int(luns[pair % len(luns)])), -1) for pair in pairs]
    return np.array(known_ones, dtype=np.int64)[which]


def _common(several: Sequence[Intervals]) -> Intervals:
    """The time that all of these have in common."""
    edges, place = np.unique(np.concatenate([np.concatenate(each) for each in several]), return_inverse=True)
    steps = np.concatenate([np.repeat([1, -1], len(starts)) for starts, _ in several])
    depth = sums_of(place, steps, len(edges)).cumsum()
    is_common = depth[:-1] == len(several)
    return edges[:-1][is_common], edges[1:][is_common]


def _optimized(states: Sequence[_States], available: Sequence[Intervals]) -> Intervals:
    """When a path was optimized and in service, and had been both for long enough."""
    in_service: dict[_States, list[Intervals]] = {}
    for state, (starts, ends) in zip(states, available, strict=True):
        # the first time of all needs no settling
        in_service.setdefault(state, []).append((starts + np.where(np.arange(len(starts)) > 0, GRACE_NS, 0), ends))
    return joined([intersection(*state.times(OPTIMIZED, GRACE_NS), *joined(own)) for state, own in in_service.items()])


class _Reports:
    """What the targets said of their target port groups."""

    def __init__(self, source: Source) -> None:
        table = source("alua_states")
        self._by_session = Partition(table.select(known(table, "state")), table.raw("session")[known(table, "state")])

    def of_paths(self, volume: Volume, paths: Sequence[Sequence[Member]]) -> list[_States]:
        """The states of each path, as any path to the same target reported them: groups are those of one target."""
        members: dict[str, list[Member]] = {}
        for member in volume.members:
            members.setdefault(member.target, []).append(member)
        found: dict[str, dict[int, _States]] = {}
        nothing = _States((), ())
        states = []
        for path in paths:
            target = path[0].target
            group = next((each.target_port_group for each in path if each.target_port_group is not None), None)
            if target not in found:
                found[target] = self._by_group(members[target])
            states.append(nothing if group is None else found[target].get(group, nothing))
        return states

    def _by_group(self, members: Sequence[Member]) -> dict[int, _States]:
        rows = self._by_session.rows_of_several(member.session for member in members)
        own = {(member.session, member.lun) for member in members}
        pairs = zip(rows.raw("session").tolist(), rows.raw("lun").tolist(), strict=True)
        rows = rows.select(np.array([pair in own for pair in pairs], dtype=bool))
        rows = rows.select(np.argsort(rows.raw("time_ns"), kind="stable"))
        groups = grouped(rows.raw("target_port_group").astype(np.int64))
        return {group: _States(rows.raw("time_ns")[own], rows["state"][own]) for group, own in groups.items()}


class _States:
    """The ALUA states of a target port group over time."""

    def __init__(self, since_ns: ArrayLike, words: ArrayLike) -> None:
        self._since_ns = np.asarray(since_ns, dtype=np.int64)
        self._words = np.asarray(words, dtype=np.str_)

    @property
    def last(self) -> str | None:
        return str(self._words[-1]) if len(self._words) else None

    def are(self, word: str, at_ns: Array) -> Array:
        """Whether the state is this one at each instant; before the first report it is that."""
        if not len(self._words):
            return np.zeros(len(at_ns), dtype=bool)
        place = np.searchsorted(self._since_ns, at_ns, side="right") - 1
        return np.asarray(self._words[place.clip(0)] == word)

    def times(self, word: str, settled_ns: int) -> Intervals:
        """When the state is this one, and was reported so long before, if it is not the first."""
        bounds = np.iinfo(np.int64)
        since_ns = np.append(bounds.min, self._since_ns[1:] + settled_ns)[: len(self._words)]
        until_ns = np.append(self._since_ns[1:], bounds.max)
        is_word = self._words == word
        return merged(since_ns[is_word], until_ns[: len(self._words)][is_word])


def _within(intervals: Intervals, instants: Array) -> Array:
    starts, ends = intervals
    if not len(starts):
        return np.zeros(len(instants), dtype=bool)
    place = np.searchsorted(starts, instants, side="right") - 1
    return np.asarray((place >= 0) & (instants < ends[place.clip(0)]))


def _length(intervals: Intervals) -> int:
    return int((intervals[1] - intervals[0]).sum())
