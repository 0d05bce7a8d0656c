"""The counters of oddities, as the core declares them: what each counts, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple


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
