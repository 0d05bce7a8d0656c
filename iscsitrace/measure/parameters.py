"""Negotiated parameters: the value of a login key, and which connections have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def negotiated(row: Mapping[str, Any]) -> str | None:
    """The negotiated value of a row of ``parameters``; both values where each side has its own; None if unknown."""
    initiator, target = row["effective_initiator"], row["effective_target"]
    if initiator == target:
        return None if initiator is None else str(initiator)
    sides = (("initiator", initiator), ("target", target))
    return ", ".join(f"{side} {value}" for side, value in sides if value)


def by_value(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str | None], list[int]]:
    """The connections that have each key and value. Keys that were offered but not negotiated are left out."""
    found: dict[tuple[str, str | None], list[int]] = {}
    for row in rows:
        if row["source"] != "offered":
            found.setdefault((row["key"], negotiated(row)), []).append(row["connection"])
    return found
