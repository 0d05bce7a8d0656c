"""A synthetic session, command by command, as the tables that the core would produce: for tests of the diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iscsitrace.diagnosis.examination import examine
from iscsitrace.diagnosis.opinions import Opinion
from iscsitrace.findings.finding import Finding
from iscsitrace.measure.grouping import TABLES
from iscsitrace.tables.table import Source
from tests.support.tables_by_hand import MS, table

SECOND = 1_000 * MS
OTHERS = ("sessions", "connections", "logins", "texts", "icmp_errors", "host_questions", "logical_units", "alua_states")


class Story:
    """A session of consecutive commands, each with its time breakdown."""

    def __init__(self, *, rtt_to_target_ns: int | None = 16 * MS, rtt_to_initiator_ns: int | None = 0) -> None:
        self.now = 1_000 * SECOND
        self.end_ns: int | None = None
        """Of the connection; else 10 s after the first command, or more."""
        self.frame = 10
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*TABLES, *OTHERS)}
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
        """Time without a command in flight."""
        return self._stretches(None, ((part, length_ns),), "none")

    def answered(self, length_ns: int) -> Story:
        """Time in which a status of a read is on its way to the initiator."""
        return self._stretches(None, (("propagation", length_ns),), "data")

    def _stretches(self, cycle: int | None, parts: Sequence[tuple[str, int]], in_flight: str) -> Story:
        for part, length_ns in parts:
            self.frame += 1
            stretch = {"time_first_ns": self.now, "time_last_ns": self.now + length_ns, "part": part}
            stretch |= {"in_flight": in_flight}
            for connection in (3, None):
                own = {"session": 0, "connection": connection, "cycle": cycle, "frame": self.frame}
                self.rows["budget"].append(stretch | own)
            self.now += length_ns
        return self

    def task(self, *parts: tuple[str, int], **columns: Any) -> Story:
        """A command with this time breakdown; by default a sequential read of 128 KiB, changed by `columns`."""
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
        self._stretches(number, parts, "data" if operation in ("read", "write") else "other")
        cycles.append(row | {"status_ns": self.now, "status_frame": self.frame} | columns)
        return self

    def tasks(self, count: int, *parts: tuple[str, int], **columns: Any) -> Story:
        """This many equal commands."""
        for _ in range(count):
            self.task(*parts, **columns)
        return self

    def kept_filled(self, count: int, depth: int, *parts: tuple[str, int], **columns: Any) -> Story:
        """Commands at this queue depth: one starts in each time slot, which is the sum of the parts, and takes as many
        slots. The rest of the last ones is propagation.
        """
        start, slot_ns = self.now, sum(length for _, length in parts)
        for number in range(count):
            began = start + number * slot_ns
            times = {"command_first_ns": began, "command_last_ns": began, "status_ns": began + depth * slot_ns}
            self.task(*parts, **times | {"queue_depth": min(number + 1, depth)} | columns)
        return self.answered((depth - 1) * slot_ns)

    def add(self, of: str, **columns: Any) -> Story:
        """Adds a row of another table."""
        self.rows[of].append({"connection": 3} | columns)
        return self

    def source(self) -> Source:
        """The tables."""
        self.connection |= {"time_first_ns": 999 * SECOND, "time_last_ns": self.end_ns or max(self.now, 1_010 * SECOND)}
        made = {name: table(name, *rows) for name, rows in self.rows.items()}
        return made.__getitem__

    def opinion(self) -> Opinion:
        """The diagnosis of the session; that of its one connection is the same, without problems of sessions."""
        diagnosis = examine(self.source())
        session, connection = diagnosis.sessions[0], diagnosis.connections[3]
        assert session.budget == connection.budget
        assert [f for f in session.findings if f.problem.scope == "connection"] == connection.findings
        return session

    def found(self, name: str) -> Finding | None:
        """The finding with this name."""
        return next((finding for finding in self.opinion().findings if finding.name == name), None)


SENDER = {
    "to_target": False,
    "rwnd_min_bytes": 65_536,
    "rwnd_max_bytes": 65_536,
    "window_full_ns": 500 * MS,
    "rwnd_limited_ns": 500 * MS,
    "segment_bytes": 1_448,
    "line_bytes_per_s": 40_000_000,
}
"""A sender of 40 MB/s that an advertised window of 64 KiB limits."""


def names(story: Story) -> set[str]:
    return {finding.name for finding in story.opinion().findings}


def near(share: float) -> tuple[tuple[str, int], int]:
    """A transfer, and a wait with this share of the sum of both."""
    total = 100 * MS
    return ("transfer", total - round(share * total)), round(share * total)


def write_in_rounds(
    story: Story, count: int, *, lateness_ns: int = 0, immediate: int = 0, path: str = "propagation"
) -> None:
    """A write of `count` R2Ts at an RTT of 16 ms, each burst 4 ms long."""
    number, start = len(story.rows["cycles"]), story.now
    parts: list[tuple[str, int]] = []
    moment = start
    for r2t_sn in range(count):
        granted = moment + 16 * MS + lateness_ns
        story.rows["rounds"].append(
            {"cycle": number, "r2t_sn": r2t_sn, "desired_data_transfer_length": 65_536, "bytes": 65_536}
            | {"r2t_ns": granted, "data_first_ns": granted, "data_last_ns": granted + 4 * MS}
            | {"r2t_frame": 1_000 + r2t_sn, "data_first_frame": 2_000 + r2t_sn, "data_last_frame": 3_000 + r2t_sn}
        )
        parts += [(path, 16 * MS), ("target_service", lateness_ns), ("transfer", 4 * MS)]
        moment = granted + 4 * MS
    columns = {"r2t_first_ns": start + 16 * MS + lateness_ns, "r2t_count": count, "immediate_bytes": immediate}
    story.task(*parts, (path, 16 * MS), operation="write", bytes=65_536 * count, **columns)


def writes(tasks: int, rounds: int, **options: Any) -> Story:
    story = Story()
    for _ in range(tasks):
        write_in_rounds(story, rounds, **options)
    return story
