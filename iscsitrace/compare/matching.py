"""Which two sessions of two captures to compare, and why some cannot be."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from iscsitrace.compare.sides import Side
from iscsitrace.errors import InputInvalid
from iscsitrace.measure.workload import MIN_TASKS, MIXED
from iscsitrace.wording import amounts as wording

BUSY: Final = 0.1
"""Share of the busiest session's bytes from which on another session may be picked."""
_LIKENESS: Final[tuple[Callable[[Side], Hashable], ...]] = (
    # an unknown target is like no other
    lambda side: None if side.target_name is None else (side.operation, side.target_name),
    lambda side: side.operation,
    lambda side: side.target_name,
    lambda _: True,
)
"""What two sessions can have in common, the closest likeness first. Of each kind the busiest is enough: with many
sessions, comparing each with each takes longer than reading them.
"""


def match(
    a: Mapping[int, Side], b: Mapping[int, Side], session_a: int | None = None, session_b: int | None = None
) -> tuple[Side, Side]:
    """The two sessions to compare: the requested ones, else the most similar pair of busy sessions.

    Similar are sessions of the same operation, then those with the same target; among several the busiest.
    InputInvalid where a capture has none, or not the requested one.
    """
    candidates = _candidates(a, session_a, "first"), _candidates(b, session_b, "second")
    alike = next(filter(None, _pairs(*candidates)))
    return max(alike, key=lambda pair: (pair[0].bytes * pair[1].bytes, -pair[0].session, -pair[1].session))


def why_not(a: Side, b: Side) -> str | None:
    """Why the model cannot explain the gap between two sessions, in words; None where it can."""
    named = (("first", a), ("second", b))
    for name, side in named:
        if side.operation == MIXED:
            return _mixed(name, side)
    if a.operation != b.operation:
        return f"one session {a.operation}s and the other {b.operation}s: they are not comparable"
    for name, side in named:
        if side.path_ns is None:
            return f"the {name} capture does not show the RTT of session {side.session}"
        if side.task_count < MIN_TASKS:
            complete = wording.count(side.task_count, f"complete {side.operation}")
            return f"session {side.session} of the {name} capture has only {complete}: too few to be sure"
        if side.measured is None:
            return _mixed(name, side)
    return None


def _mixed(name: str, side: Side) -> str:
    return f"session {side.session} of the {name} capture mixes reads and writes, and the model covers one operation"


def _candidates(sides: Mapping[int, Side], number: int | None, which: str) -> list[Side]:
    if not sides:
        raise InputInvalid(f"the {which} capture has no session that read or wrote data; diagnose says what it shows")
    if number is not None:
        if number not in sides:
            known = ", ".join(map(str, sides))
            raise InputInvalid(f"the {which} capture has no session {number} that read or wrote data; it has {known}")
        return [sides[number]]
    most = max(side.bytes for side in sides.values())
    return [side for side in sides.values() if side.bytes >= BUSY * most]


def _pairs(a: Sequence[Side], b: Sequence[Side]) -> Iterator[list[tuple[Side, Side]]]:
    """The busiest pair of each kind that both have, for the closest likeness first."""
    for kind_of in _LIKENESS:
        one, other = _busiest_by(kind_of, a), _busiest_by(kind_of, b)
        yield [(one[kind], other[kind]) for kind in one.keys() & other.keys()]


def _busiest_by(kind_of: Callable[[Side], Hashable], sides: Iterable[Side]) -> dict[Hashable, Side]:
    """The busiest of each kind, among equals the first; those of the kind None are left out."""
    # the last of a kind stays
    found = {kind_of(side): side for side in sorted(sides, key=lambda side: (side.bytes, -side.session))}
    found.pop(None, None)
    return found
