"""Sense data as text: sense keys (SPC-5), additional sense codes and qualifiers (T10's list), both from core/wire."""

from __future__ import annotations

from functools import cache
from typing import Final

UNKNOWN: Final = "unknown additional sense"
"""The text of a code that T10 has not assigned."""
_VENDOR_SPECIFIC: Final = 0x80
"""From here on T10 assigns neither additional sense codes nor, unless listed, qualifiers."""


@cache
def sense_keys() -> tuple[str, ...]:
    """The name of each sense key; Ch was EQUAL until SPC-3."""
    from iscsitrace import _core

    return _core.SENSE_KEYS


@cache
def codes() -> dict[tuple[int, int], str]:
    """Additional sense code and qualifier to text, without the ranges."""
    from iscsitrace import _core

    return {(asc, ascq): words for asc, ascq, words in _core.sense_codes()}


def additional_sense(asc: int, ascq: int) -> str:
    """The text of a code and qualifier: ``unrecovered read error``, ``vendor specific``."""
    if (words := codes().get((asc, ascq))) is not None:
        return words
    if asc == 0x40 and ascq >= _VENDOR_SPECIFIC:
        return f"diagnostic failure on component {ascq:02X}h"
    if asc == 0x4D:
        return f"tagged overlapped commands (task tag {ascq:02X}h)"
    if asc == 0x70:
        return f"decompression exception short algorithm ID of {ascq:02X}h"
    if asc >= _VENDOR_SPECIFIC:
        return "vendor specific"
    general = codes().get((asc, 0))
    if ascq >= _VENDOR_SPECIFIC and general is not None:
        return f"{general} (vendor specific qualifier)"
    return UNKNOWN


def sense_text(sense_key: int, asc: int, ascq: int) -> str:
    """Sense data in words and in hexadecimal: ``MEDIUM ERROR, unrecovered read error (3/11/00)``."""
    words = additional_sense(asc, ascq)
    return f"{sense_keys()[sense_key & 0xF]}, {words} ({sense_key & 0xF:X}/{asc:02X}/{ascq:02X})"
