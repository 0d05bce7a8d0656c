"""A number that some output says: the name of its definition, what it is about, and how exactly it is said.

Names are those of docs/method.md. Two numbers of one name about one subject are the same number: they may differ by
their rounding alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations

from tests.support.printed import UNITS

PERCENT_NOT_ROUNDED = (Decimal(1), Decimal(99))
"""Outside of these, percentages have two decimals that are rounded towards the middle."""


@dataclass(frozen=True)
class Said:
    """One number."""

    name: str
    """Of its definition."""
    subject: str
    """Such as ``session 0``."""
    value: Decimal
    """Without a unit: seconds, bytes, shares from 0 to 1."""
    step: Decimal
    """The largest error of its rounding."""
    place: str
    """Where it stands."""

    def is_same(self, other: Said) -> bool:
        """Whether both can be the same number."""
        return abs(self.value - other.value) <= self.step + other.step

    def __str__(self) -> str:
        return f"{self.name} of {self.subject}: {self.value:f} ({self.place})"


def exact(name: str, subject: str, value: float | None, place: str, unit: str = "") -> Iterator[Said]:
    """A number of a JSON document; nothing for null."""
    if value is not None:
        number = Decimal(repr(value)) * UNITS[unit or "bytes"]
        # binary fractions, and times in whole nanoseconds
        yield Said(name, subject, number, max(abs(number) / 10**12, UNITS[unit] if unit == "ns" else Decimal(0)), place)


def printed(name: str, subject: str, digits: str, unit: str, place: str) -> Said:
    """A number as text; ``digits`` without its unit."""
    plain = digits.replace(",", "")
    decimals = len(plain.partition(".")[2])
    scale = UNITS[unit or "bytes"]
    step = Decimal(1).scaleb(-decimals) / 2
    if not decimals and unit in ("", "bytes"):
        # counts are exact
        step = Decimal(0)
    if unit == "%" and not PERCENT_NOT_ROUNDED[0] <= Decimal(plain) <= PERCENT_NOT_ROUNDED[1]:
        step = Decimal("0.01")
    return Said(name, subject, Decimal(plain) * scale, step * scale, place)


def in_words(name: str, subject: str, text: str, place: str) -> Said:
    """A number with its unit, such as ``8.9 ms``."""
    digits, _, unit = text.partition(" ")
    return printed(name, subject, digits, unit, place)


def contradictions(said: Iterable[Said]) -> list[str]:
    """The pairs of numbers that should be the same and are not."""
    by_name: dict[tuple[str, str], list[Said]] = defaultdict(list)
    for each in said:
        by_name[each.name, each.subject].append(each)
    return [
        f"{one} against {other}"
        for same in by_name.values()
        for one, other in combinations(dict.fromkeys(same), 2)
        if not one.is_same(other)
    ]
