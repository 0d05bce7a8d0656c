"""An estimated number: its confidence interval, and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

SOURCES: Final = ("fit", "packets", "line", "given", "assumed")
"""Regression over captures; the packets of the commands; the line rate of ``senders``; the user; or a default that
nothing contradicts."""


@dataclass(frozen=True)
class Estimate:
    """A value with the ends of its 95 % confidence interval, in the unit of its name."""

    value: float
    low: float
    high: float
    source: str
    """One of SOURCES."""

    @classmethod
    def exact(cls, value: float, source: str = "given") -> Estimate:
        """A value without an interval."""
        return cls(value, value, value, source)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "source": self.source}
