"""Login parameters: whether the values that both sides sent agree, and what was negotiated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from iscsitrace.wording.login_keys import LIST, LOGIN_KEYS

_LISTS: Final = ("AuthMethod", "CHAP_A", *(key for key, (_, kind) in LOGIN_KEYS.items() if kind == LIST))
"""Keys with a list of values, from which the other side chooses one (RFC 7143 section 6.2.1)."""
_REJECT: Final = "reject"
_NO_ANSWERS: Final = {"notunderstood", "irrelevant"}
"""Answers that leave a key out of the negotiation (RFC 7143 section 6.2)."""


def do_not_agree(key: str, initiator: str | None, target: str | None) -> bool:
    """Whether the values that both sides sent for a key have none in common, or one side rejected the key."""
    ours, theirs = _values(initiator), _values(target)
    if not ours or not theirs or (ours | theirs) & _NO_ANSWERS:
        return False
    return _REJECT in ours | theirs or (key in _LISTS and not ours & theirs)


def is_rejected(value: str) -> bool:
    """Whether a side rejected the key."""
    return _REJECT in _values(value)


def _values(text: str | None) -> set[str]:
    return {value.strip().lower() for value in (text or "").split(",")} - {""}


def negotiated(row: Mapping[str, Any]) -> str | None:
    """The negotiated value of a row of ``parameters``; both values where each side has its own; None if unknown."""
    initiator, target = row["effective_initiator"], row["effective_target"]
    if initiator == target:
        return None if initiator is None else str(initiator)
    sides = (("initiator", initiator), ("target", target))
    return ", ".join(f"{side} {value}" for side, value in sides if value)


def connections_by_value(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str | None], list[int]]:
    """The connections that have each key and value. Keys that were offered but not negotiated are left out."""
    found: dict[tuple[str, str | None], list[int]] = {}
    for row in rows:
        if row["source"] != "offered":
            found.setdefault((row["key"], negotiated(row)), []).append(row["connection"])
    return found
