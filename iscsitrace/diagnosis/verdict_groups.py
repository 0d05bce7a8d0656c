"""The verdicts of many sessions in groups: by initiator, target, LUN, volume or hour, the worst first.

Each part of a story belongs to one group. Sessions that took each other's place count as the one story that they are,
so that no time is lost twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from iscsitrace.diagnosis.headline import Verdict
from iscsitrace.diagnosis.opinions import Stories
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.measure import busy, intervals, waits
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.grouping import session_of_stretches
from iscsitrace.relate.loads import HOUR_NS, Attributes, hour_label
from iscsitrace.relate.portals import written
from iscsitrace.relate.stories import Story
from iscsitrace.relate.volumes import ends_of_sessions
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import distinct, first_rows, sums_of
from iscsitrace.tables.table import Array, Source, Table


class StoryShare(NamedTuple):
    """The part of a story that belongs to one value."""

    key: int | str
    lost: float
    """Share of the time that it lost."""
    busy_ns: float


@dataclass(frozen=True)
class Belonging:
    """The parts of each story by one attribute."""

    parts: Sequence[Sequence[StoryShare]]
    """By place of the story."""
    labels: Mapping[int | str, str] = field(default_factory=dict)
    """Of keys that are no labels themselves."""
    hosts: Mapping[int | str, str] = field(default_factory=dict)
    """The initiators of volumes."""


def belonging_of(name: str, source: Source, stories: Stories) -> Belonging:
    """The parts of each story by one of NAMES; ``source`` is the method ``table`` of the trace."""
    return _BY[name](name, source, stories)


def _by_end(name: str, source: Source, stories: Stories) -> Belonging:
    """By the names of its sessions' ends; of connections without a session by the only name at their address, else by
    the address.
    """
    side = "host" if name == "initiator" else "target"
    ends = {number: each[side] for number, each in ends_of_sessions(source).items()}
    names: dict[str, set[str]] = {}
    for story in stories.all:
        for row in story.connections:
            if row["session"] in ends:
                names.setdefault(_address(row, name), set()).add(ends[row["session"]])
    only = {address: next(iter(found)) for address, found in names.items() if len(found) == 1}

    def labels(story: Story) -> Iterable[str]:
        named = dict.fromkeys(ends[number] for number in story.numbers if number in ends)
        addresses = dict.fromkeys(_address(row, name) for row in story.connections)
        return named or dict.fromkeys(only.get(address, address) for address in addresses)

    every = zip(stories.all, stories.verdicts, strict=True)
    return Belonging([[StoryShare(label, 1.0, verdict.jobs_ns) for label in labels(story)] for story, verdict in every])


def _address(row: Mapping[str, Any], name: str) -> str:
    if name == "initiator":
        return str(row["initiator_address"])
    return written(row["target_address"], row["target_port"])


def _by_unit(name: str, source: Source, stories: Stories) -> Belonging:
    """By LUN or volume: those that its sessions read, write or erase; a problem is that of those that it hit. They are
    busy while commands of their own are in flight.
    """
    told = Attributes(source).by(name)
    cycles, is_placed = source("cycles"), told.places >= 0
    sessions, places = cycles.raw("session")[is_placed].astype(np.int64), told.places[is_placed]
    pairs, which = distinct(sessions * max(len(told.labels), 1) + places)
    luns = np.zeros(len(pairs), dtype=np.uint64)
    luns[which] = cycles.raw("lun")[is_placed]
    ends_ns = waits.of_trace(source).ends_ns(cycles)[is_placed]
    busy_ns = _in_flight_ns(cycles.raw("command_first_ns")[is_placed], ends_ns, which)
    used: dict[int, list[tuple[int, int, int]]] = {}
    for pair, lun, amount_ns in zip(pairs.tolist(), luns.tolist(), busy_ns.tolist(), strict=True):
        session, place = divmod(pair, len(told.labels))
        used.setdefault(session, []).append((place, lun, amount_ns))

    def parts(number: int, story: Story) -> list[StoryShare]:
        own: dict[int, int] = {}
        unit: dict[int, int] = {}
        for session in story.numbers:
            for place, lun, amount_ns in used.get(session, ()):
                own[place], unit[place] = own.get(place, 0) + amount_ns, lun
        luns_hit = stories.luns_of(number) if len(own) > 1 else ()
        hit = {place for place, lun in unit.items() if lun in luns_hit} or {*own}
        lost = dict.fromkeys(hit, 1.0)
        if len(own) > 1 and (waited_ns := lost_by_unit(story, stories.verdicts[number])):
            lost = {place: waited_ns.get(place, 0.0) for place in hit}
        return [StoryShare(place, lost.get(place, 0.0), amount_ns) for place, amount_ns in own.items()]

    budget = source("budget")
    waits_ns: dict[str, dict[int, dict[int, float]]] = {}

    def lost_by_unit(story: Story, verdict: Verdict) -> dict[int, float]:
        """The share of what is slow that commands of each waited; empty of what broke, or where they do not wait."""
        explains = PROBLEMS[verdict.name].explains if verdict.name in PROBLEMS else None
        if verdict.is_failure or explains is None or not verdict.cost_ns:
            return {}
        if explains.part not in waits_ns:
            waits_ns[explains.part] = _waits_ns(budget, explains.part, cycles.raw("cycle"), told.places)
        own_ns: dict[int, float] = {}
        for session in story.numbers:
            for place, amount_ns in waits_ns[explains.part].get(session, {}).items():
                own_ns[place] = own_ns.get(place, 0.0) + amount_ns
        return {place: min(1.0, amount_ns / verdict.cost_ns) for place, amount_ns in own_ns.items()}

    hosts: dict[int | str, str] = {each.number: each.host for each in told.volumes.all} if told.volumes else {}
    found = [parts(number, story) for number, story in enumerate(stories.all)]
    return Belonging(found, dict(enumerate(told.labels)), hosts)


def _waits_ns(budget: Table, part: str, numbers: Array, places: Array) -> dict[int, dict[int, float]]:
    """The busy time in a part of the time breakdown by session and place of the command that waited."""
    sessions = session_of_stretches(budget)
    which = (sessions >= 0) & (budget.raw("part") == PARTS.index(part)) & (budget.each(busy.uses) == busy.BUSY)
    which &= known(budget, "cycle")
    rows = np.searchsorted(numbers, budget.raw("cycle")[which])
    width = int(places.max(initial=0)) + 1
    is_placed = places[rows] >= 0
    keys, groups = distinct((sessions[which] * width + places[rows])[is_placed])
    lengths_ns = (budget.raw("time_last_ns") - budget.raw("time_first_ns"))[which][is_placed]
    found: dict[int, dict[int, float]] = {}
    for key, amount_ns in zip(keys.tolist(), sums_of(groups, lengths_ns, len(keys)).tolist(), strict=True):
        session, place = divmod(key, width)
        found.setdefault(session, {})[place] = float(amount_ns)
    return found


def _in_flight_ns(starts: Array, ends: Array, groups: Array) -> Array:
    """Time in which a command of each group is in flight; there is no group without one."""
    order = np.lexsort((starts, groups))
    firsts = first_rows(groups[order])
    return intervals.union_lengths(starts[order], ends[order], firsts) if len(order) else starts


def _by_hour(_: str, source: Source, stories: Stories) -> Belonging:
    """By hour: the busy time, and the time lost: of what broke by when it did, else as the busy time is spread."""
    found = []
    busy_ns = _busy_ns(source)
    for story, verdict in zip(stories.all, stories.verdicts, strict=True):
        own: dict[int, float] = {}
        for number in story.numbers:
            for hour, amount_ns in busy_ns.get(number, {}).items():
                own[hour] = own.get(hour, 0.0) + amount_ns
        times = [(row["time_first_ns"], row["time_last_ns"]) for row in story.connections]
        lost = _shares(verdict.spans) or _normed(own) or _shares(times[:1])
        found.append([StoryShare(hour, lost.get(hour, 0.0), own.get(hour, 0.0)) for hour in sorted({*own, *lost})])
    hours = {part.key for parts in found for part in parts}
    return Belonging(found, {hour: hour_label(int(hour)) for hour in hours})


def _busy_ns(source: Source) -> dict[int, dict[int, float]]:
    """The busy time of each session by hour."""
    budget = source("budget")
    sessions = session_of_stretches(budget)
    which = np.flatnonzero((sessions >= 0) & (budget.each(busy.uses) == busy.BUSY))
    row, hours, lengths_ns = _cut(budget.raw("time_first_ns")[which], budget.raw("time_last_ns")[which])
    base = int(hours.min(initial=np.iinfo(np.int64).max)) if len(hours) else 0
    width = int(hours.max(initial=base)) - base + 1
    keys, places = distinct(sessions[which][row] * width + (hours - base))
    sums_ns = sums_of(places, lengths_ns, len(keys))
    found: dict[int, dict[int, float]] = {}
    for key, amount_ns in zip(keys.tolist(), sums_ns.tolist(), strict=True):
        session, hour = divmod(key, width)
        found.setdefault(session, {})[hour + base] = amount_ns
    return found


def _cut(first_ns: Array, last_ns: Array) -> tuple[Array, Array, Array]:
    """Intervals cut at the hours: the interval of each piece, its hour and its length."""
    first, last = first_ns // HOUR_NS, np.maximum(last_ns - 1, first_ns) // HOUR_NS
    counts = last - first + 1
    row = np.repeat(np.arange(len(counts)), counts)
    hours = first[row] + np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    starts, ends = np.maximum(first_ns[row], hours * HOUR_NS), np.minimum(last_ns[row], (hours + 1) * HOUR_NS)
    return row, hours, ends - starts


def _shares(spans: Sequence[tuple[int, int]]) -> dict[int, float]:
    """The share of each hour in these spans; of spans without length those of their instants."""
    _, hours, lengths_ns = _cut(*np.array(spans, dtype=np.int64).reshape(-1, 2).T)
    weights = lengths_ns if lengths_ns.any() else np.ones_like(lengths_ns)
    sums: dict[int, float] = {}
    for hour, weight in zip(hours.tolist(), weights.tolist(), strict=True):
        sums[hour] = sums.get(hour, 0.0) + weight
    return _normed(sums)


def _normed(amounts: Mapping[int, float]) -> dict[int, float]:
    """Each amount / their sum; nothing where that is 0."""
    whole = sum(amounts.values())
    return {key: amount / whole for key, amount in amounts.items()} if whole else {}


_BY: Final[dict[str, Callable[[str, Source, Stories], Belonging]]] = {
    "initiator": _by_end,
    "target": _by_end,
    "lun": _by_unit,
    "volume": _by_unit,
    "hour": _by_hour,
}
NAMES: Final = tuple(_BY)
"""What sessions can be told apart by."""


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
    parts_of = belonging_of(name, source, stories)
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
