"""Phrases as sentences."""

from __future__ import annotations

from collections.abc import Sequence
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
