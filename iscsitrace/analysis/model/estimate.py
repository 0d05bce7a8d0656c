"""A number with what is known of it: its confidence interval, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

SOURCES: Final = ("fit", "packets", "given", "assumed")
"""By regression over captures; read off the packets of one; told by the user; a default that nothing contradicts."""


@dataclass(frozen=True)
class Estimate:
    """A value between two ends of a 95 % confidence interval, in the unit that its name says."""

    value: float
    low: float
    high: float
    source: str
    """One of SOURCES."""

    @classmethod
    def exact(cls, value: float, source: str = "given") -> Estimate:
        """A value without doubt."""
        return cls(value, value, value, source)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "source": self.source}
