"""What several inputs have to do with each other: parts of one capture, taps of the same traffic, or the same packets.

It decides by content alone, and states in a line what it decided. Captures of many places are put into groups that
belong together first: by their headers, and by the contents only where headers do not join all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables.schema import TAPPED_TABLES
from iscsitrace.tables.tap_join import connections_seen
from iscsitrace.tables.trace import TraceTables, read
from iscsitrace.taps.reading import (
    MOST_TAPS,
    NEEDED,
    CapturePoint,
    TappedTables,
    in_order,
    read_each,
    read_taps,
    recognise_all,
)
from iscsitrace.taps.recognition import Recognition, Relation
from iscsitrace.wording import cells

_FIRST_PACKETS = 1 << 14
"""Nearly always these show that two captures ran at the same time."""

_HALF = 1 << 31
_WHOLE = 1 << 32

End = tuple[str, int]
"""Address and port."""


@dataclass(frozen=True)
class _Seen:
    """One TCP connection in one capture."""

    first_ns: int
    last_ns: int
    sequences: dict[End, tuple[int | None, int | None]]
    """First and last sequence number of each end."""

    def goes_on_in(self, other: _Seen) -> bool:
        """Whether the other one begins where this one ends, in time and in both streams."""
        steps = [
            other.sequences[end][0] - last  # type: ignore[operator]
            for end, (_, last) in self.sequences.items()
            if last is not None and other.sequences[end][0] is not None
        ]
        return other.first_ns >= self.last_ns and all(step % _WHOLE < _HALF for step in steps)

    def overlaps(self, other: _Seen) -> bool:
        """Whether both have bytes of the same place in a stream: two connections of these ends have other numbers."""
        return any(
            (other.sequences[end][0] - first) % _WHOLE <= (last - first) % _WHOLE  # type: ignore[operator]
            or (first - other.sequences[end][0]) % _WHOLE  # type: ignore[operator]
            <= (other.sequences[end][1] - other.sequences[end][0]) % _WHOLE  # type: ignore[operator]
            for end, (first, last) in self.sequences.items()
            if None not in (first, last, *other.sequences[end])
        )


ConnectionsSeen = dict[frozenset[End], _Seen]


def are_parts(sources: Sequence[str]) -> bool:
    """Whether each capture continues the one before it, by headers alone: a fraction of the time of reading."""
    try:
        # what goes on before the first packets of another have passed does not continue it, however that ends
        return _are_continued(sources, _FIRST_PACKETS, is_end_known=False) and _are_continued(sources)
    except CaptureUnreadable:
        return False


def _are_continued(sources: Sequence[str], packet_limit: int | None = None, *, is_end_known: bool = True) -> bool:
    """Whether each capture continues the one before it, or may do so, as far as it is read."""
    seen = [seen_in(each, packet_limit) for each in sources]
    for before, after in pairwise(seen):
        shared = before.keys() & after.keys()
        if (is_end_known and not shared) or not all(before[ends].goes_on_in(after[ends]) for ends in shared):
            return False
    return True


def seen_in(source: str, packet_limit: int | None = None) -> ConnectionsSeen:
    """The connections of a capture, by both ends; of those that had the same ends, the last. CaptureUnreadable."""
    rows = connections_seen([source], packet_limit=packet_limit)["connections_seen"].rows()
    return {frozenset(sequences): seen for seen in map(_seen, rows) if (sequences := seen.sequences)}


def _seen(row: dict[str, Any]) -> _Seen:
    sequences = {
        (row[f"{side}_address"], row[f"{side}_port"]): (
            row[f"{side}_first_sequence_number"],
            row[f"{side}_last_sequence_number"],
        )
        for side in ("client", "server")
    }
    return _Seen(row["time_first_ns"], row["time_last_ns"], sequences)


Pairs = Mapping[tuple[int, int], Recognition]


@dataclass(frozen=True)
class Inputs:
    """What was read, and how."""

    trace: TraceTables
    lines: tuple[str, ...]
    """For a person: what the inputs are to each other; none for one input."""


def read_inputs(
    sources: Sequence[str],
    named: Mapping[str, Sequence[str]],
    *,
    are_synchronised: bool = False,
    tables: Iterable[str] = (),
    read_already: Sequence[TraceTables] = (),
    **options: Any,
) -> Inputs:
    """Reads captures: as one, or, if they are of several taps, as those.

    ``read_already`` is what :func:`read_apart` returned for ``sources``, if it was called.

    ``named`` has the captures of each tap that a person named; then ``sources`` has no others. Two to eight unnamed
    sources are compared, except standard input, which cannot be read twice. Raises what ``read`` and ``read_taps``
    raise, and InputInvalid where it is unclear which captures belong to one tap.
    """
    wanted = set(tables)
    if named:
        if sources:
            raise InputInvalid(f"name the tap of every capture, also of {sources[0]}: --tap NAME=FILE")
        return _of_taps(read_taps(named, are_synchronised=are_synchronised, tables=wanted, **options))
    if not 2 <= len(sources) <= MOST_TAPS or "-" in sources:
        return _as_one(sources, wanted, options)
    if are_parts(sources):
        return _as_one(sources, wanted, options)
    try:
        traces = read_already or read_apart(sources, tables=wanted, **options)
    except CaptureUnreadable:
        # beside others a source that cannot be read is counted
        return _as_one(sources, wanted, options)
    pairs = recognise_all(traces, are_synchronised=are_synchronised)
    copies = [(first, second) for (first, second), each in pairs.items() if each.relation is Relation.COPY]
    if copies:
        kept = [source for place, source in enumerate(sources) if place not in {second for _, second in copies}]
        again = read_inputs(kept, {}, are_synchronised=are_synchronised, tables=wanted, **options)
        lines = (f"{sources[second]} has the same packets as {sources[first]}: read once" for first, second in copies)
        return Inputs(again.trace, (*lines, *again.lines))
    if not any(each.relation is Relation.TAPS for each in pairs.values()):
        return _as_one(sources, wanted, options)
    if all(each.relation is Relation.TAPS for each in pairs.values()):
        names = _names(sources)
        taps = [
            CapturePoint(name, (source,), trace) for name, source, trace in zip(names, sources, traces, strict=True)
        ]
        return _of_taps(in_order(taps, pairs))
    near, far = _sides(sources, traces, pairs)
    sides = {_names(side)[0]: side for side in (near, far)}
    return _of_taps(read_taps(sides, are_synchronised=are_synchronised, tables=wanted, **options))


def read_apart(sources: Sequence[str], *, tables: Iterable[str] = (), **options: Any) -> list[TraceTables]:
    """Each capture as a trace of its own, with these tables and those by which taps of one traffic are recognised."""
    return read_each([(source,) for source in sources], tables={*tables, *NEEDED} - TAPPED_TABLES.keys(), **options)


def _as_one(sources: Sequence[str], wanted: set[str], options: Mapping[str, Any]) -> Inputs:
    """Read as parts of one capture, in the order in which they are named."""
    trace = read(*sources, tables=wanted, **options)  # tables of taps are refused here
    if len(sources) == 1:
        return Inputs(trace, ())
    return Inputs(trace, (f"{len(sources):,} captures read as parts of one, in the order given",))


def _sides(sources: Sequence[str], traces: Sequence[TraceTables], pairs: Pairs) -> tuple[list[str], list[str]]:
    """The captures near the initiator and those near the target, each in order of time; each is one tap in parts."""
    near, far = set(), set()
    for (first, second), each in pairs.items():
        if each.relation is Relation.TAPS:
            near.add(first if each.is_first_nearer else second)
            far.add(second if each.is_first_nearer else first)
    if near & far or len(near | far) < len(sources):
        raise InputInvalid("it is unclear which captures belong to one tap: name the taps with --tap NAME=FILE")
    starts = [trace.first_packet[0] if trace.first_packet else 0 for trace in traces]
    return tuple([sources[place] for place in sorted(side, key=starts.__getitem__)] for side in (near, far))  # type: ignore[return-value]


def _names(sources: Sequence[str]) -> list[str]:
    """Names of taps that nobody named: those of their files, or their paths where the names are equal."""
    names = [Path(source).name for source in sources]
    return names if len(set(names)) == len(names) else list(sources)


def _of_taps(trace: TappedTables) -> Inputs:
    """With the line that states what was recognised."""
    names = " -> ".join(tap.name for tap in trace.tap_list)
    lines = [f"same traffic at {len(trace.tap_list)} taps, from the initiator to the target: {names}"]
    for network, near, far in zip(trace.networks, trace.tap_list[:-1], trace.tap_list[1:], strict=True):
        clock = network.clock
        if clock.is_assumed:
            known = "clocks assumed to be synchronised"
        else:
            offset, half = cells.milliseconds(clock.offset_ns), cells.milliseconds((clock.high_ns - clock.low_ns) // 2)
            known = f"clock offset {far.name} - {near.name}: {offset} +- {half} ms"
            if clock.steps_ns:
                known += f", set {len(clock.steps_ns)} times"
        lines.append(f"{known}; {network.command_count:,} commands in both captures")
    if trace.whole.is_translated:
        lines.append("addresses differ between the taps (NAT or a proxy)")
    return Inputs(trace, tuple(lines))


RingOf = Callable[[str], str | None]
"""The ring that a file is of, by its name; None for another file."""
Reading = Callable[[Sequence[str]], Sequence[TraceTables]]
"""Reads each capture into a trace of its own."""


def groups(
    sources: Sequence[str], ring_of: RingOf = lambda _: None, read: Reading = read_apart
) -> list[tuple[str, ...]]:
    """The captures in groups that belong together; each in the order given, and so are the groups.

    ``read`` is called at most once; a caller that goes on with what it read reads nothing twice.
    A capture that cannot be read is a group of its own. Standard input can be read once: then all are one group.
    """
    if len(sources) < 2 or "-" in sources:
        return [tuple(sources)]
    groups = _Groups(sources)
    rings: dict[str, str] = {}
    for each in sources:
        ring = ring_of(each)
        if ring is not None:
            groups.join(rings.setdefault(ring, each), each)
    if len(groups.found) == 1:
        return groups.found
    seen = {each: _readable(each) for each in sources}
    readable = [each for each in sources if seen[each] is not None]
    are_few = 2 <= len(readable) <= MOST_TAPS
    _join_by_connections(groups, seen, has_contents=are_few)
    if are_few and len(groups.found) > 1:
        # runs of one lab have equal ports, numbers and times; taps beyond a translation of addresses have not
        for (one, other), relation in recognise_all(read(readable)).items():
            if relation.relation is not Relation.OTHER:
                groups.join(readable[one], readable[other])
    return groups.found


def _join_by_connections(groups: _Groups, seen: Mapping[str, ConnectionsSeen | None], *, has_contents: bool) -> None:
    """Joins captures with a connection that goes on from one to the other; or that passes both at the same time, which
    contents show better where they are compared.
    """
    by_ends: dict[object, list[str]] = {}
    for source, connections in seen.items():
        for ends, one in (connections or {}).items():
            others = by_ends.setdefault(ends, [])
            for each in others:
                other = (seen[each] or {})[ends]
                if groups.are_joined(source, each):
                    continue
                if one.goes_on_in(other) or other.goes_on_in(one) or (not has_contents and one.overlaps(other)):
                    groups.join(source, each)
            others.append(source)


def _readable(source: str) -> ConnectionsSeen | None:
    try:
        return seen_in(source)
    except CaptureUnreadable:
        return None


class _Groups:
    """Disjoint groups that are joined."""

    def __init__(self, names: Iterable[str]) -> None:
        self._of = {name: {name: None} for name in names}

    def join(self, first: str, second: str) -> None:
        one, other = self._of[first], self._of[second]
        if one is not other:
            one.update(other)
            for name in other:
                self._of[name] = one

    def are_joined(self, first: str, second: str) -> bool:
        return self._of[first] is self._of[second]

    @property
    def found(self) -> list[tuple[str, ...]]:
        order = {name: place for place, name in enumerate(self._of)}
        kept = {id(group): group for group in self._of.values()}
        return [tuple(sorted(group, key=order.__getitem__)) for group in kept.values()]
