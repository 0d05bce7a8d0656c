"""A session told task by task, and the tables that the core would have made of it: for tests of the diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from iscsitrace.analysis.findings.examination import Opinion, examine
from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.session.grouping import TABLES
from iscsitrace.tables.table import Table
from tests.support.tables_by_hand import MS, table

SECOND = 1_000 * MS


class Story:
    """A session told task by task, one after another: each with the stretches of time that the budget has for it."""

    def __init__(self, *, rtt_to_target_ns: int | None = 16 * MS, rtt_to_initiator_ns: int | None = 0) -> None:
        self.now = 1_000 * SECOND
        self.frame = 10
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*TABLES, "sessions", "connections")}
        self.rows["sessions"].append({"session": 0})
        self.connection = {
            "connection": 3,
            "session": 0,
            "is_iscsi": True,
            "rtt_to_target_min_ns": rtt_to_target_ns,
            "rtt_to_initiator_min_ns": rtt_to_initiator_ns,
            "stream_bytes_to_initiator": 1_000_000,
            "explained_bytes_to_initiator": 1_000_000,
            "pdu_count_to_initiator": 1_000,
            "packets_to_initiator": 1_000,
        }
        self.rows["connections"].append(self.connection)

    def pause(self, length_ns: int, part: str = "initiator_think") -> Story:
        """Time without a task."""
        return self._stretches(None, ((part, length_ns),))

    def _stretches(self, cycle: int | None, parts: Sequence[tuple[str, int]]) -> Story:
        for part, length_ns in parts:
            self.frame += 1
            stretch = {"time_first_ns": self.now, "time_last_ns": self.now + length_ns, "part": part}
            for connection in (3, None):
                own = {"session": 0, "connection": connection, "cycle": cycle, "frame": self.frame}
                self.rows["budget"].append(stretch | own)
            self.now += length_ns
        return self

    def task(self, *parts: tuple[str, int], **columns: Any) -> Story:
        """A task that takes these stretches of time; what `columns` leave open is a read of 128 KiB in order."""
        cycles = self.rows["cycles"]
        number = len(cycles)
        operation = columns.get("operation", "read")
        size = columns.get("bytes", 131_072)
        start, self.frame = self.now, self.frame + 1
        lba = cycles[-1]["lba"] + cycles[-1]["block_count"] if cycles else 0
        row = {
            "cycle": number,
            "session": 0,
            "connection": 3,
            "lun": 0,
            "operation": operation,
            "is_read": operation == "read",
            "is_write": operation == "write",
            "lba": lba,
            "block_count": size // 512,
            "bytes": size,
            "data_bytes": size,
            "data_pdu_count": 1,
            "command_first_ns": start,
            "command_last_ns": start,
            "command_frame": self.frame,
            "queue_depth": 1,
            "is_complete": True,
            "is_status_in_data": True,
            "status": 0,
        }
        self._stretches(number, parts)
        cycles.append(row | {"status_ns": self.now, "status_frame": self.frame} | columns)
        return self

    def tasks(self, count: int, *parts: tuple[str, int], **columns: Any) -> Story:
        """As many alike."""
        for _ in range(count):
            self.task(*parts, **columns)
        return self

    def kept_filled(self, count: int, depth: int, *parts: tuple[str, int], **columns: Any) -> Story:
        """Tasks of which so many are outstanding: one begins in each slot of time, which is the sum of the parts, and
        takes as many slots. What remains of the last ones is the path's.
        """
        start, slot_ns = self.now, sum(length for _, length in parts)
        for number in range(count):
            began = start + number * slot_ns
            times = {"command_first_ns": began, "command_last_ns": began, "status_ns": began + depth * slot_ns}
            self.task(*parts, **times | {"queue_depth": min(number + 1, depth)} | columns)
        return self.pause((depth - 1) * slot_ns, "propagation")

    def add(self, of: str, **columns: Any) -> Story:
        """A row of another table."""
        self.rows[of].append({"connection": 3} | columns)
        return self

    def source(self) -> Callable[[str], Table]:
        """The tables."""
        self.connection |= {"time_first_ns": 999 * SECOND, "time_last_ns": max(self.now, 1_010 * SECOND)}
        made = {name: table(name, *rows) for name, rows in self.rows.items()}
        return made.__getitem__

    def opinion(self) -> Opinion:
        """Of the session; that of its one connection is the same, less what only sessions have."""
        diagnosis = examine(self.source())
        session, connection = diagnosis.sessions[0], diagnosis.connections[3]
        assert session.budget == connection.budget
        assert [f for f in session.findings if not f.problem.is_session_only] == connection.findings
        return session

    def found(self, name: str) -> Finding | None:
        """The finding of that name."""
        return next((finding for finding in self.opinion().findings if finding.name == name), None)
