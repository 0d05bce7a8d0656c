"""Processor time of programs, as the kernel counts it: ``{"user_ns", "system_ns"}``, as in a truth.

The core measures the processor time of its own threads.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping

CpuTime = Mapping[str, int]

_SECOND_NS = 1_000_000_000


def of_ended_children() -> dict[str, int]:
    """Processor time of all ended child processes (getrusage(2), RUSAGE_CHILDREN)."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"user_ns": round(usage.ru_utime * _SECOND_NS), "system_ns": round(usage.ru_stime * _SECOND_NS)}


def since(before: CpuTime) -> dict[str, int]:
    """Processor time of child processes that ended since ``before``. No other child may end meanwhile."""
    return {name: ns - before[name] for name, ns in of_ended_children().items()}
