"""The table of events: computed from the other tables on request."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

EVENTS: Final = Table(
    "events",
    "one event: what happened to a connection, a session or a command, in order of time",
    (
        column("event", "uint32", "number, from 0"),
        column("time_ns", "int64", "when it happened or began", "ns"),
        column("end_ns", "int64", "when it ended; null where it has no length, or had not ended in the capture", "ns", null=True),
        column("frame", "uint64", "the frame that shows it", null=True),
        column("session", "uint32", "its session", null=True),
        column("connection", "uint32", "its connection", null=True),
        column("lun", "uint64", "its logical unit", null=True),
        column("cycle", "uint32", "row of its command in cycles", null=True),
        column("kind", "category:event_kind", "what happened"),
        column("severity", "category:severity", "info: expected in healthy traffic; warning and error: look at it; data_loss: the capture misses something"),
        column("text", "str", "what happened, in words; equal for events that differ only in time, frame, connection and command"),
    ),
)  # fmt: skip
