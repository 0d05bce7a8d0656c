"""What faults did in a run of our own programs, for its truth: when each was there, and what it hit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from iscsitrace.lab.faults.fault import Fault

Hits = dict[str, Any]
"""``fault began_ns ended_ns count from_ns to_ns``, as the core logs them."""


def of_link(log: dict[str, Any] | None) -> list[Hits]:
    """Takes the hits of both directions out of the log of a link."""
    return [hit for way in ("to_target", "to_initiator") if log for hit in log[way].pop("faults", ())]


def rows(faults: Sequence[Fault], hits: Iterable[Hits], started_ns: int, ended_ns: int) -> list[dict[str, Any]]:
    """A row per fault: ``name host details``; ``began_ns`` and ``ended_ns``, between which it was there, null for one
    that did not begin; ``count`` packets, commands, logins, connections or cards that it hit, the first and last of
    them at ``from_ns`` and ``to_ns``.
    """
    by_fault: dict[int, list[Hits]] = {}
    for hit in hits:
        by_fault.setdefault(hit["fault"], []).append(hit)
    return [_row(each, by_fault.get(number, []), started_ns, ended_ns) for number, each in enumerate(faults)]


def _row(fault: Fault, hits: list[Hits], started_ns: int, ended_ns: int) -> dict[str, Any]:
    if fault.kind.is_timed:
        began_ns = _least(hit["began_ns"] for hit in hits if (hit["began_ns"] or ended_ns) < ended_ns)
        ends = [ended_ns if hit["ended_ns"] is None else hit["ended_ns"] for hit in hits]
        end_ns = None if began_ns is None else min(ended_ns, max(ends, default=ended_ns))
    else:
        began_ns, end_ns = started_ns, ended_ns
    return {
        **fault.as_dict(),
        "began_ns": began_ns,
        "ended_ns": end_ns,
        "count": sum(hit["count"] for hit in hits),
        "from_ns": _least(hit["from_ns"] for hit in hits),
        "to_ns": max((hit["to_ns"] for hit in hits if hit["to_ns"] is not None), default=None),
    }


def _least(times: Iterable[int | None]) -> int | None:
    return min((each for each in times if each is not None), default=None)
