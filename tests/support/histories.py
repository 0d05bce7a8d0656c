"""Hand-made traces of sessions that take each other's place, for tests of stories and of what broke."""

from __future__ import annotations

from typing import Any

from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.measure.grouping import TABLES
from iscsitrace.tables.table import Source
from tests.support.tables_by_hand import MS, table

SECOND = 1_000 * MS
START_NS = 1_000 * SECOND
"""The start of the capture."""


def at(seconds: float) -> int:
    """An instant, in seconds since the start of the capture."""
    return START_NS + round(seconds * SECOND)


class Told:
    """A trace of one initiator and one target; instants are in seconds since its start.

    Sessions are numbered in the order in which they are added, connections likewise.
    """

    def __init__(self) -> None:
        more = (
            "sessions",
            "connections",
            "retransmissions",
            "logins",
            "texts",
            "rejects",
            "asyncs",
            "logouts",
            "icmp_errors",
            "host_questions",
            "logical_units",
            "alua_states",
        )
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*TABLES, *more, "write_starts")}
        self.frame = 1

    def session(self, first: float, last: float, *, end: str = "open", replaces: int | None = None, **more: Any) -> int:
        """A session with one connection, logged in 10 ms after its first packet. Its number."""
        number = len(self.rows["sessions"])
        names = {"initiator_name": "iqn.i", "target_name": "iqn.t", "isid": "80"}
        row = {"session": number, "session_type": "normal", "login_status": 0, "end": end, "replaces": replaces}
        times = {"time_first_ns": at(first), "time_last_ns": at(last)}
        columns = {name: more.pop(name) for name in [*more] if name in ("session_type", "login_status", *names)}
        self.rows["sessions"].append(row | names | times | columns)
        connection = self.connection(first, last, session=number, is_iscsi=True, **more)
        if columns.get("login_status", 0) == 0:
            self.login(first + 0.01, connection)
        return number

    def login(self, seconds: float, connection: int, status_class: int = 0, detail: int = 0, **columns: Any) -> None:
        """A login request, and its response 1 ms later: the last one of a login, if it is a success."""
        row = {"connection": connection, "request_ns": at(seconds - 0.001), "request_frame": self._next_frame()}
        row |= {"response_ns": at(seconds), "response_frame": self._next_frame(), "next_stage": 3}
        row |= {"status_class": status_class, "status_detail": detail, "is_transit": status_class == 0}
        self.rows["logins"].append(row | columns)

    def connection(self, first: float, last: float, **columns: Any) -> int:
        """A connection. Columns that end with ``_ns`` are in seconds. Its number."""
        number = len(self.rows["connections"])
        times = {name: at(value) for name, value in columns.items() if name.endswith("_ns")}
        ends = {f"{name[:-3]}_frame": self._next_frame() for name in times if name.startswith(("fin_", "rst_"))}
        row: dict[str, Any] = {"connection": number, "time_first_ns": at(first), "time_last_ns": at(last)}
        row |= {"has_syn": True}
        row |= {"initiator_address": "10.0.0.1", "target_address": "10.0.0.2", "target_port": 3260}
        row |= {"rtt_to_target_min_ns": 2 * MS, "rtt_to_initiator_min_ns": 0}
        self.rows["connections"].append(row | columns | times | ends)
        return number

    def read(self, session: int, first: float, status: float | None, /, **columns: Any) -> int:
        """A read of 16 KiB, from when to when, with a time breakdown of propagation. Its number."""
        number = len(self.rows["cycles"])
        connection = next(row["connection"] for row in self.rows["connections"] if row.get("session") == session)
        row = {"cycle": number, "session": session, "connection": connection, "lun": 0, "operation": "read"}
        row |= {"is_read": True, "bytes": 16_384, "data_bytes": 16_384, "command_first_ns": at(first)}
        row |= {"command_last_ns": at(first), "command_frame": self._next_frame(), "is_complete": status is not None}
        if status is not None:
            row |= {"status_ns": at(status), "data_first_ns": at(status), "data_last_ns": at(status), "status": 0}
            row |= {"status_frame": self._next_frame()}
            self.time(session, first, status, "propagation")
        self.rows["cycles"].append(row | columns)
        return number

    def reads(self, session: int, first: float, count: int) -> None:
        """Reads of 5 ms, one after another."""
        for number in range(count):
            self.read(session, first + number * 0.005, first + (number + 1) * 0.005)

    def time(self, session: int, first: float, last: float, part: str) -> None:
        """Time of a session in one part of its breakdown, with reads in flight."""
        row = {"session": session, "connection": None, "time_first_ns": at(first), "time_last_ns": at(last)}
        self.rows["budget"].append(row | {"part": part, "in_flight": "data"})

    def add(self, name: str, **columns: Any) -> None:
        """A row of another table. Columns that end with ``_ns`` are in seconds, unless they are null."""
        times = {column: at(value) for column, value in columns.items() if column.endswith("_ns") and value is not None}
        self.rows[name].append(columns | times)

    def _next_frame(self) -> int:
        self.frame += 1
        return self.frame

    def source(self) -> Source:
        """The tables."""
        made = {name: table(name, *rows) for name, rows in self.rows.items()}
        return made.__getitem__

    def diagnosis(self) -> Diagnosis:
        """The diagnosis."""
        return examine(self.source())
