"""What processor time a run took: of our threads as the core measured it, of programs as the kernel counted it.

Times are ``{"user_ns", "system_ns"}``, as in a truth. Measures nothing itself.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping

CpuTime = Mapping[str, int]

_SECOND_NS = 1_000_000_000


def of_ended_children() -> dict[str, int]:
    """Of all programs that this process has started and that have ended (getrusage(2), RUSAGE_CHILDREN)."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"user_ns": round(usage.ru_utime * _SECOND_NS), "system_ns": round(usage.ru_stime * _SECOND_NS)}


def since(before: CpuTime) -> dict[str, int]:
    """Of those that have ended since then; who asks runs no other program meanwhile that ends."""
    return {name: ns - before[name] for name, ns in of_ended_children().items()}


def seconds_per_gigabyte(taken: CpuTime | None, byte_count: int) -> float | None:
    """User and system together, for 10^9 bytes; None where nothing is known, or nothing was moved."""
    # nanoseconds a byte are seconds a gigabyte
    return None if taken is None or not byte_count else sum(taken.values()) / byte_count
