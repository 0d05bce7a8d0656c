"""The table of the time breakdown."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

BUDGET: Final = Table(
    "budget",
    "one interval of the time breakdown of a connection or a session, from first command to last status",
    (
        column("session", "uint32", "the session", null=True),
        column("connection", "uint32", "the connection; null: time of the session, all its connections as one", null=True),
        column("time_first_ns", "int64", "its start", "ns"),
        column("time_last_ns", "int64", "its end, which is the start of the next one", "ns"),
        column("part", "category:budget_part", "part of the time breakdown that it is attributed to", source="method 4"),
        column("cycle", "uint32", "row in cycles of the command that waits, or whose data passes", null=True),
        column("frame", "uint64", "the frame at its end", null=True),
    ),
)  # fmt: skip
