"""Which session of the one capture stands beside which of the other, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iscsitrace.analysis.comparison.sides import Side
from iscsitrace.errors import InputInvalid

BUSY: Final = 0.1
"""Share of what the busiest session of a capture moved, from which another one may be meant."""


def match(
    a: Mapping[int, Side], b: Mapping[int, Side], session_a: int | None = None, session_b: int | None = None
) -> tuple[Side, Side]:
    """The two sessions to compare: those asked for, else of those that moved much the pair that is most alike.

    Alike are sessions that do the same (read, write), then those with the same target; among several the busiest.
    InputInvalid where a capture has none, or not the one that was asked for.
    """
    pairs = [
        (one, other) for one in _candidates(a, session_a, "first") for other in _candidates(b, session_b, "second")
    ]
    return max(pairs, key=lambda pair: _likeness(*pair))


def why_not(a: Side, b: Side) -> str | None:
    """Why the model cannot explain the gap between two sessions, in words; None when it can."""
    for side in (a, b):
        if side.operation == "block":
            return f"session {side.session} reads and writes side by side, and the model takes one of them at a time"
    if a.operation != b.operation:
        return f"the one {a.operation}s and the other {b.operation}s: they are not comparable"
    for name, side in (("first", a), ("second", b)):
        if side.path_ns is None:
            return f"the {name} capture does not tell the round trip of session {side.session}"
        if side.measured is None:
            return f"the {name} capture has only {side.task_count} whole {side.operation}s: that may be chance"
    return None


def _candidates(sides: Mapping[int, Side], number: int | None, which: str) -> list[Side]:
    if not sides:
        raise InputInvalid(f"the {which} capture has no session that read or wrote data")
    if number is not None:
        if number not in sides:
            known = ", ".join(map(str, sides))
            raise InputInvalid(f"the {which} capture has no session {number} that read or wrote data; it has {known}")
        return [sides[number]]
    most = max(side.bytes for side in sides.values())
    return [side for side in sides.values() if side.bytes >= BUSY * most]


def _likeness(a: Side, b: Side) -> tuple[bool, bool, int, int, int]:
    is_same_target = a.target_name is not None and a.target_name == b.target_name
    # of equals the first
    return a.operation == b.operation, is_same_target, a.bytes * b.bytes, -a.session, -b.session
