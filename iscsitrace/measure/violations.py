"""Violations of RFC 7143 by rule, side and connection, the worst first; and what of a capture could not be judged.

The judging is the core's. Nothing is put into words here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Source, Table
from iscsitrace.wording.rules import SEVERITIES, Rule, rules

DATA_LOSS: Final = "D18"
"""The rule that a target breaks which reports data as written that it does not have."""

NEVER_SENT: Final = ("S1", "S4", "S9", "S11")
"""Rules whose violation skips numbers: the PDUs that seem to be missing were never sent."""


@dataclass(frozen=True)
class Violated:
    """What one side of a connection did against one rule."""

    rule: Rule
    side: str
    connection: int
    session: int | None
    count: int
    frames: tuple[int, ...]
    """The first ones, and the last."""
    unlisted: int
    """Those between, without a frame."""
    time_ns: int | None
    """Of the first one."""
    until_ns: int | None
    """Of the last one."""
    initiator_task_tag: int | None
    """Of the first one."""
    cycles: tuple[int, ...]
    """Rows in ``cycles`` of the commands."""
    seen: int | None
    expected: int | None
    """Of the first one."""

    @property
    def weight(self) -> tuple[bool, int, int, int]:
        """How bad it is: lost data, severity, count, the earliest."""
        severity = SEVERITIES.index(self.rule.severity)
        return self.rule.name == DATA_LOSS, severity, self.count, -(self.frames[0] if self.frames else 0)

    @property
    def what(self) -> str:
        """What the first one did, as a sentence without a full stop."""
        return self.rule.did(self.side, self.seen, self.expected)


def violated(violations: Table, sessions: Mapping[int, int | None]) -> list[Violated]:
    """The violations of these rows, the worst first; ``sessions`` has the session of each connection, if it has one."""
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in violations.rows():
        groups.setdefault((row["rule"], row["side"], row["connection"]), []).append(row)
    found = [
        _violated(rule, side, connection, sessions.get(connection), rows)
        for (rule, side, connection), rows in groups.items()
    ]
    return sorted(found, key=lambda each: each.weight, reverse=True)


def _violated(rule: str, side: str, connection: int, session: int | None, rows: list[dict[str, Any]]) -> Violated:
    first = rows[0]
    frames = (*(row["frame"] for row in rows), rows[-1]["last_frame"])
    return Violated(
        rules()[rule],
        side,
        connection,
        session,
        sum(row["count"] for row in rows),
        tuple(dict.fromkeys(frame for frame in frames if frame is not None)),
        max(0, rows[-1]["count"] - 2),
        first["time_ns"],
        rows[-1]["last_time_ns"],
        first["initiator_task_tag"],
        tuple(row["cycle"] for row in rows if row["cycle"] is not None),
        first["seen"],
        first["expected"],
    )


def by_rule(found: Iterable[Violated]) -> list[list[Violated]]:
    """Those of one side and rule together, the worst first."""
    groups: dict[tuple[str, str], list[Violated]] = {}
    for each in found:
        groups.setdefault((each.side, each.rule.name), []).append(each)

    def weight(group: list[Violated]) -> tuple[bool, int, int]:
        is_loss, severity, _, _ = group[0].weight
        return is_loss, severity, sum(each.count for each in group)

    return sorted(groups.values(), key=weight, reverse=True)


@dataclass(frozen=True)
class Unjudged:
    """A reason why rules were not judged."""

    reason: str
    """``login_not_captured``, ``capture_holes``, ``several_connections`` or ``not_listed``."""
    count: int
    """Connections; sessions of several connections; violations that are not listed."""
    of: int
    """Of how many."""


def unjudged(source: Source) -> Iterator[Unjudged]:
    """What could not be judged in a trace."""
    connections, sessions = source("connections"), source("sessions")
    own = connections.select(connections.raw("is_iscsi"))
    without = sessions.raw("session")[~sessions.raw("is_login_captured")]
    has_no_login = np.isin(own.raw("session"), without) | ~known(own, "session")
    if has_no_login.any():
        yield Unjudged("login_not_captured", int(has_no_login.sum()), len(own))
    # a PDU that only the numbers miss may never have been sent: its bytes are not missing
    has_holes = (own.raw("gap_bytes_to_target") + own.raw("gap_bytes_to_initiator")) > 0
    if has_holes.any():
        yield Unjudged("capture_holes", int(has_holes.sum()), len(own))
    is_several = sessions.raw("connection_count") > 1
    if is_several.any():
        yield Unjudged("several_connections", int(is_several.sum()), len(sessions))
    counters = source("counters")
    not_listed = sum(row["count"] for row in counters.rows(("name", "count")) if row["name"] == "violations_not_listed")
    if not_listed:
        yield Unjudged("not_listed", not_listed, 0)
