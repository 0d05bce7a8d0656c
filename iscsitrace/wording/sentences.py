"""Phrases as sentences, and names like one that does not exist."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Final


def capital(text: str) -> str:
    """A text with a first capital."""
    return text[:1].upper() + text[1:]


def joined(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``; empty of none."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def some(shown: Sequence[object], count: int) -> str:
    """``a, b and 3 more``: the first of so many."""
    more = count - len(shown)
    return ", ".join(map(str, shown)) + (f" and {more} more" if more > 0 else "")


def brief(text: str) -> str:
    """The first three sentences of a text: what, how much and since when. The others are details."""
    first = text.split(". ")[:_SENTENCES]
    return ". ".join(first).removesuffix(".") + "."


_SENTENCES: Final = 3


def sentence(text: str) -> str:
    """A text with a first capital and a full stop, which whole sentences have."""
    return capital(text.removesuffix(".") + ".")


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
