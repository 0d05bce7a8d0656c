"""Capture health: the counters of a trace by name, the worst first, and whether PDUs of a connection may be missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table

SEVERITIES = CATEGORIES["severity"]
"""From harmless to worst."""


def by_name(counters: Table) -> list[dict[str, Any]]:
    """One dict per counter name: severity, count over all connections, first frame, connections, meaning, advice."""
    found: dict[str, dict[str, Any]] = {}
    for row in counters.rows():
        entry = found.setdefault(
            row["name"],
            {
                "name": row["name"],
                "severity": row["severity"],
                "count": 0,
                "first_frame": None,
                "connections": [],
                "meaning": row["meaning"],
                "advice": row["advice"],
            },
        )
        entry["count"] += row["count"]
        if row["connection"] is not None:
            entry["connections"].append(row["connection"])
        frames = [frame for frame in (entry["first_frame"], row["first_frame"]) if frame is not None]
        entry["first_frame"] = min(frames, default=None)
    return sorted(found.values(), key=lambda entry: SEVERITIES.index(entry["severity"]), reverse=True)


def reaching(entries: list[dict[str, Any]], severity: str) -> list[dict[str, Any]]:
    """The counters above 0 of this severity or worse."""
    limit = SEVERITIES.index(severity)
    return [entry for entry in entries if entry["count"] and SEVERITIES.index(entry["severity"]) >= limit]


TARGET: Final = "target"
INITIATOR: Final = "initiator"
"""Directions, by the receiver."""

_MISSING: Final = ("gap_bytes", "missing_pdu_count")
"""Bytes of holes; PDUs that were counted by the numbers of others, such as those whose headers a snaplen cut."""


def may_lack_pdus(value: Callable[[str], Any], *directions: str) -> Any:
    """Whether PDUs of these directions, or of both, may be missing: a bool, or one for each connection.

    ``value`` returns a column of ``connections``: of one row or of all of them.
    """
    names = (f"{name}_to_{direction}" for direction in directions or (TARGET, INITIATOR) for name in _MISSING)
    return sum(value(name) for name in names) > 0
