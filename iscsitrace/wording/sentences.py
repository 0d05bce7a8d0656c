"""Phrases as sentences."""

from __future__ import annotations

from typing import Final


def capital(text: str) -> str:
    """A text with a first capital."""
    return text[:1].upper() + text[1:]


def brief(text: str) -> str:
    """The first three sentences of a text: what, how much and since when. The others are details."""
    first = text.split(". ")[:_SENTENCES]
    return ". ".join(first).removesuffix(".") + "."


_SENTENCES: Final = 3


def sentence(text: str) -> str:
    """A text with a first capital and a full stop, which whole sentences have."""
    return capital(text.removesuffix(".") + ".")
