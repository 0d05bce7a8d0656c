"""The table on time: who owns each nanosecond."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

BUDGET: Final = Table(
    "budget",
    "one stretch of time with one owner, of a connection or of a session, from first command to last status (only when asked for)",
    (
        column("session", "uint32", "the session", null=True),
        column("connection", "uint32", "the connection; null: the session's own time, all its connections as one", null=True),
        column("time_first_ns", "int64", "its start", "ns"),
        column("time_last_ns", "int64", "its end: the start of the next one", "ns"),
        column("part", "category:budget_part", "its owner", source="method 4"),
        column("cycle", "uint32", "the task that was waited for, or whose data passed", null=True),
        column("frame", "uint64", "the frame that ended it", null=True),
    ),
)  # fmt: skip
