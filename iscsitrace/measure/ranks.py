"""Percentiles: the given ones, and how many values each takes. Imports nothing, for commands that read no capture."""

from __future__ import annotations

from typing import Final

PERCENTILES: Final = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
VALUES_MIN: Final = {"p90": 10, "p95": 20, "p99": 100, "p999": 1000}
"""Of fewer values the nearest rank of a percentile is the maximum: it says nothing more."""


def is_meaningful(name: str, count: int) -> bool:
    """Whether that many values are enough for a percentile, such as ``p95``."""
    return count >= VALUES_MIN.get(name, 1)
