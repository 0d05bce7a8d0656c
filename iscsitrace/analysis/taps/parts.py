"""Whether captures are parts of one: each connection goes on in the next where it was in the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from iscsitrace.errors import CaptureUnreadable
from iscsitrace.tables.table import Table
from iscsitrace.tables.tap_join import connections_seen

_FIRST_PACKETS = 1 << 14
"""Nearly always these show that two captures ran at the same time."""

_HALF = 1 << 31
_WHOLE = 1 << 32

End = tuple[str, int]
"""Address and port."""


@dataclass(frozen=True)
class _Seen:
    """One TCP connection in one capture."""

    first_ns: int
    last_ns: int
    sequences: dict[End, tuple[int | None, int | None]]
    """First and last sequence number of each end."""

    def goes_on_in(self, other: _Seen) -> bool:
        """Whether the other one begins where this one ends, in time and in both streams."""
        steps = [
            other.sequences[end][0] - last  # type: ignore[operator]
            for end, (_, last) in self.sequences.items()
            if last is not None and other.sequences[end][0] is not None
        ]
        return other.first_ns >= self.last_ns and all(step % _WHOLE < _HALF for step in steps)


def are_parts(sources: Sequence[str]) -> bool:
    """Whether each capture continues the one before it, by headers alone: a fraction of the time of reading."""
    try:
        # what goes on before the first packets of another have passed does not continue it, however that ends
        return _are_continued(sources, _FIRST_PACKETS, is_end_known=False) and _are_continued(sources)
    except CaptureUnreadable:
        return False


def _are_continued(sources: Sequence[str], packet_limit: int | None = None, *, is_end_known: bool = True) -> bool:
    """Whether each capture continues the one before it, or may do so, as far as it is read."""
    seen = [_connections(connections_seen([each], packet_limit=packet_limit)["connections_seen"]) for each in sources]
    for before, after in pairwise(seen):
        shared = before.keys() & after.keys()
        if (is_end_known and not shared) or not all(before[ends].goes_on_in(after[ends]) for ends in shared):
            return False
    return True


def _connections(table: Table) -> dict[frozenset[End], _Seen]:
    """By both ends; of connections that had the same ends, the last."""
    return {frozenset(sequences): seen for seen in map(_seen, table.rows()) if (sequences := seen.sequences)}


def _seen(row: dict[str, Any]) -> _Seen:
    sequences = {
        (row[f"{side}_address"], row[f"{side}_port"]): (
            row[f"{side}_first_sequence_number"],
            row[f"{side}_last_sequence_number"],
        )
        for side in ("client", "server")
    }
    return _Seen(row["time_first_ns"], row["time_last_ns"], sequences)
