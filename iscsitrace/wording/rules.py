"""What the core declares: the rules of RFC 7143 that are judged, and the counters of oddities.

The judging is the core's; here is what each rule and counter is, and what a violation did, as a sentence.
``rule_notes.py`` has what a page says beside this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from iscsitrace.wording import amounts, scsi_names

SEVERITIES: Final = ("info", "warning", "error")
"""From harmless to worst."""
ALWAYS_WRONG: Final = "D21"
"""The rule that a side breaks which computes digests wrongly: in every PDU of a type, and the core lists the first
three."""


@dataclass(frozen=True)
class Rule:
    """A rule."""

    name: str
    """Such as ``D18``."""
    sections: str
    """Of RFC 7143, the one with the rule first: ``11.7.6, 11.8.3``."""
    sides: tuple[str, ...]
    """Who can break it: ``initiator``, ``target``."""
    severity: str
    sentence: str
    broken: str
    """What a violation did, after "The target ", without a full stop; with ``{seen}`` and ``{expected}``;
    ``{seen:key}`` is a login key, ``{seen:pdu}`` a type of PDU, ``{seen:status}`` a SCSI status, ``{seen:time}`` a
    time."""

    def did(self, side: str, seen: int | None, expected: int | None) -> str:
        """``The target asked for 28672 bytes in an R2T; MaxBurstLength is 16384``: no full stop, tags in hex."""
        words = self.broken.replace(":x}", ":#x}")
        return f"The {side} {words.format(seen=_Number(seen), expected=_Number(expected))}"

    def often(self, count: int, first: str = "") -> str:
        """``3 times, first at 0.05 s``; ``first at 0.05 s`` where every PDU of a type breaks the rule."""
        if self.name == ALWAYS_WRONG:
            return f"first at {first}" if first else "always"
        return amounts.times_since(count, first)


class _Number:
    """A number of a violation, which not every row has."""

    def __init__(self, value: int | None) -> None:
        self._value = value

    def __format__(self, spec: str) -> str:
        if self._value is None:
            return "(unknown)"
        if spec == "pdu":
            return pdu_type(self._value)
        if spec == "status":
            return scsi_names.statuses().get(self._value, f"status {self._value:#04x}")
        if spec == "time":
            return amounts.time(self._value)
        return _key(self._value) if spec == "key" else format(self._value, spec)


def _key(place: int) -> str:
    """The login key at a place of the core's list."""
    return str(login_keys()[place]["name"])


def login_keys() -> Sequence[Mapping[str, Any]]:
    """The login keys of RFC 7143 as the core declares them: ``name section bounds default`` and more."""
    from iscsitrace import _core

    return _core.login_keys()


def pdu_type(opcode: int) -> str:
    """``SCSI Data-In``; ``PDU with opcode 0x3c`` for one that RFC 7143 does not have."""
    from iscsitrace import _core

    return _core.PDU_TYPES.get(opcode, f"PDU with opcode {opcode:#04x}")


@cache
def rules() -> Mapping[str, Rule]:
    """Every rule by name, in the core's order."""
    from iscsitrace import _core

    return {
        row["rule"]: Rule(
            row["rule"], row["section"], tuple(row["sides"]), row["severity"], row["sentence"], row["broken"]
        )
        for row in _core.conformance_rules()
    }


class Counter(NamedTuple):
    """A counter."""

    name: str
    severity: int
    """A code of the category ``severity``."""
    meaning: str
    """What is counted."""
    advice: str


@cache
def counters() -> Mapping[str, Counter]:
    """Every counter by name, in the core's order."""
    from iscsitrace import _core

    return {counter.name: counter for counter in map(Counter._make, _core.counters())}
