"""Names like one that does not exist."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

_MOST: Final = 5
"""Names that are offered."""


def like(name: str, known: Collection[str]) -> list[str]:
    """The known names that have it as a word (``idle``: ``idle time``), the shortest first; else those spelt alike."""
    word = name.lower()
    whole = sorted((each for each in known if word in _words(each)), key=len)
    return whole[:_MOST] or get_close_matches(name, known, n=_MOST, cutoff=0.5)


def refusal(name: str, kind: str, known: Collection[str], listed: str) -> str:
    """``'x' is not a rule; names like it: ...``, and the command by which the others are ``listed``."""
    near = like(name, known)
    names = f"; names like it: {', '.join(near)}" if near else ""
    return f"{name!r} is {kind}{names}; `{listed}` lists all"


def _words(name: str) -> set[str]:
    """The words of a name, also without the s of a plural."""
    words = re.split(r"\W|_", name.lower())
    return {*words, *(each.removesuffix("s") for each in words)}
