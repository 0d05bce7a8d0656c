"""Coverage: the decoded share of an input, per connection and direction and in total.

Shares are computed from the columns of ``connections``; they are None where there was nothing to decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iscsitrace.tables.table import Table

DIRECTIONS = ("to_target", "to_initiator")

_COUNTS = (
    "stream_bytes",
    "captured_bytes",
    "gap_bytes",
    "cut_bytes",
    "explained_bytes",
    "pdu_count",
    "missing_pdu_count",
)


@dataclass(frozen=True)
class Coverage:
    """Bytes and PDUs of one direction of one connection, or of all iSCSI connections (``connection`` None)."""

    connection: int | None
    direction: str | None
    stream_bytes: int
    captured_bytes: int
    gap_bytes: int
    cut_bytes: int
    explained_bytes: int
    pdu_count: int
    missing_pdu_count: int

    @property
    def explained_bytes_share(self) -> float | None:
        """Decoded bytes / stream bytes, 0 to 1: decoded are the bytes of PDUs whose length is known."""
        return _share(self.explained_bytes, self.stream_bytes)

    @property
    def captured_bytes_share(self) -> float | None:
        """Bytes carried by captured packets / stream bytes, 0 to 1."""
        return _share(self.captured_bytes, self.stream_bytes)

    @property
    def pdu_share(self) -> float | None:
        """PDUs whose header was read up to the task tag / these and the PDUs known to be missing, 0 to 1."""
        return _share(self.pdu_count, self.pdu_count + self.missing_pdu_count)

    def as_dict(self) -> dict[str, Any]:
        """Counts and shares for JSON."""
        return vars(self) | {
            "explained_bytes_share": self.explained_bytes_share,
            "captured_bytes_share": self.captured_bytes_share,
            "pdu_share": self.pdu_share,
        }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def measure(connections: Table) -> list[Coverage]:
    """The coverage of each direction of each iSCSI connection, in the order of the table; the total is last."""
    rows = []
    for row in connections.rows():
        if row["is_iscsi"]:
            for direction in DIRECTIONS:
                counts = [row[f"{name}_{direction}"] for name in _COUNTS]
                rows.append(Coverage(row["connection"], direction, *counts))
    totals = [sum(getattr(row, name) for row in rows) for name in _COUNTS]
    return [*rows, Coverage(None, None, *totals)]
