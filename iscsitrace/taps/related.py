"""Which captures belong together: parts of one capture, taps of the same traffic, copies. The rest is unrelated.

It reads headers first, and the contents only where headers do not join all. It decides nothing else: inputs.py reads
each group, and says what its captures are to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from iscsitrace.errors import CaptureUnreadable
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps import inputs
from iscsitrace.taps.inputs import ConnectionsSeen
from iscsitrace.taps.reading import MOST_TAPS, recognise_all
from iscsitrace.taps.recognition import Relation

RingOf = Callable[[str], str | None]
"""The ring that a file is of, by its name; None for another file."""
Reading = Callable[[Sequence[str]], Sequence[TraceTables]]
"""Reads each capture into a trace of its own."""


def groups(
    sources: Sequence[str], ring_of: RingOf = lambda _: None, read: Reading = inputs.read_apart
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
    seen = {each: _seen(each) for each in sources}
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


def _seen(source: str) -> ConnectionsSeen | None:
    try:
        return inputs.seen_in(source)
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
