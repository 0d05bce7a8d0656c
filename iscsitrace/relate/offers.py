"""Offers: the values that initiator and target sent for a login key, and whether they have one in common."""

from __future__ import annotations

from typing import Final

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
