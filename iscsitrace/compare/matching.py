"""Which two sessions of two captures to compare, and why some cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iscsitrace.compare.sides import Side
from iscsitrace.errors import InputInvalid
from iscsitrace.measure.workload import MIN_TASKS, MIXED
from iscsitrace.wording import amounts as wording

BUSY: Final = 0.1
"""Share of the busiest session's bytes from which on another session may be picked."""


def match(
    a: Mapping[int, Side], b: Mapping[int, Side], session_a: int | None = None, session_b: int | None = None
) -> tuple[Side, Side]:
    """The two sessions to compare: the requested ones, else the most similar pair of busy sessions.

    Similar are sessions of the same operation, then those with the same target; among several the busiest.
    InputInvalid where a capture has none, or not the requested one.
    """
    pairs = [
        (one, other) for one in _candidates(a, session_a, "first") for other in _candidates(b, session_b, "second")
    ]
    return max(pairs, key=lambda pair: _likeness(*pair))


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


def _likeness(a: Side, b: Side) -> tuple[bool, bool, int, int, int]:
    is_same_target = a.target_name is not None and a.target_name == b.target_name
    # among equals the first
    return a.operation == b.operation, is_same_target, a.bytes * b.bytes, -a.session, -b.session
