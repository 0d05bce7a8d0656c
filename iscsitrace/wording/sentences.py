"""Phrases as sentences."""

from __future__ import annotations


def capital(text: str) -> str:
    """A text with a first capital."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """A text with a first capital and a full stop, which whole sentences have."""
    return capital(text.removesuffix(".") + ".")
