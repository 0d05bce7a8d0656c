"""Tables of a fleet's dataset that are computed in each period of a ring (fleet/periods.py)."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

FINDINGS: Final = Table(
    "findings",
    "one finding of a diagnosis, in one period of a ring",
    (
        column("time_first_ns", "int64", "its start; of the I/O in which it was found, where it has none of its own", "ns"),
        column("time_last_ns", "int64", "its end", "ns"),
        column("session", "uint32", "the last session that has it", null=True),
        column("sessions", "str", "all of them, separated by spaces"),
        column("connection", "uint32", "the first connection of that session; the one that has it, where there is no session", null=True),
        column("lun", "uint64", "the logical unit that has it; null where there are several, or none", null=True),
        column("name", "str", "its name"),
        column("rank", "category:finding_rank", "failure: something broke; slowness: it costs time; note: worth knowing"),
        column("severity", "category:severity", "as `diagnose` shows it"),
        column("is_leading", "bool", "whether a person has to read it first: what broke and what users notice"),
        column("cost_ns", "int64", "time that it costs", "ns", null=True),
        column("busy_ns", "int64", "busy time of its session in the period", "ns", source="method 4"),
        column("text", "str", "the facts with their numbers"),
        column("advice", "str", "what to do about it"),
        column("frame", "uint64", "the first frame that shows it", null=True),
        column("frames", "str", "a few frames that show it, separated by spaces"),
    ),
)  # fmt: skip

TIME_BREAKDOWN: Final = Table(
    "time_breakdown",
    "time of a session in one part of the time breakdown, in one period of a ring",
    (
        column("session", "uint32", "the session"),
        column("lun", "uint64", "the logical unit of the commands that waited; null where there were none, and the session uses several", null=True),
        column("part", "category:budget_part", "part of the time breakdown", source="method 4"),
        column("is_busy", "bool", "whether it is busy time: shares are of the busy time", source="method 4"),
        column("time_first_ns", "int64", "its first instant", "ns"),
        column("time_last_ns", "int64", "its last instant", "ns"),
        column("duration_ns", "int64", "the time between them that is in this part", "ns"),
    ),
)  # fmt: skip
