"""Tables made by hand for tests: rows have only relevant values, all others are null or zero; and a core with them.

It implements the null rule from the text of the schema, so that tests of nulls are independent of the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

import iscsitrace
from iscsitrace.measure import waits
from iscsitrace.measure.waits import Waits
from iscsitrace.tables import schema
from iscsitrace.tables.phases import DERIVED
from iscsitrace.tables.schema import CATEGORIES, DERIVED_TABLES, TABLES, Column
from iscsitrace.tables.table import Table

DECLARED = TABLES | DERIVED_TABLES
WORDS = CATEGORIES | schema.WORDS
OPERATIONS = WORDS["operation"]
NO_CODE = 255
HEADER_FIELDS = (
    "initiator_task_tag",
    "target_transfer_tag",
    "cmd_sn",
    "stat_sn",
    "exp_stat_sn",
    "exp_cmd_sn",
    "max_cmd_sn",
    "data_sn",
    "buffer_offset",
    "expected_data_transfer_length",
)


def null_of(dtype: str) -> int:
    bits = int(dtype.lstrip("uint"))
    return (1 << bits) - 1 if dtype.startswith("u") else -(1 << (bits - 1))


def stored(column: Column, value: Any) -> Any:
    """A Python value as stored by the core."""
    if column.dtype.startswith("category:"):
        return NO_CODE if value is None else WORDS[column.dtype.removeprefix("category:")].index(value)
    if column.dtype == "str":
        return value or ""
    if value is None and column.nullable:
        return null_of(column.dtype)
    return value or 0


def columns_of(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The columns of a table as returned by the core.

    A stretch of the time breakdown has reads or writes in flight unless it is think time, or says otherwise.
    """
    if name == "budget":
        in_flight = {True: "none", False: "data"}
        rows = [{"in_flight": in_flight[row.get("part") == "initiator_think"]} | row for row in rows]
    known = {column.name for column in DECLARED[name].columns}
    assert all(set(row) <= known for row in rows), [set(row) - known for row in rows]
    columns: dict[str, Any] = {}
    for column in DECLARED[name].columns:
        none = stored(column, None)
        values = [none if (value := row.get(column.name)) is None else stored(column, value) for row in rows]
        if column.dtype == "str":
            columns[column.name] = values
        else:
            dtype = "uint8" if column.dtype.startswith("category:") else column.dtype
            columns[column.name] = np.array(values, dtype=dtype)
    return columns


def masks_of(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The masks returned by the core: of the header fields of PDUs, for which every value is possible."""
    if name != "pdus":
        return {}
    return {field: np.array([row.get(field) is None for row in rows], dtype=bool) for field in HEADER_FIELDS}


def table(name: str, *rows: dict[str, Any]) -> Table:
    """A table of these rows."""
    derived = DERIVED if name == "cycles" else None
    return Table(DECLARED[name], columns_of(name, rows), masks_of(name, rows), WORDS, derived)


class CoreError(Exception):
    """Replaces the core's CaptureError."""


Rows = Mapping[str, Sequence[dict[str, Any]]]


class Pass:
    """Replaces the core's result: returns each column once."""

    def __init__(self, tables: Rows, inputs: list[dict[str, Any]] | None = None) -> None:
        self.tables = tables
        self.taken: list[tuple[str, str]] = []
        self._columns: dict[str, dict[str, Any]] = {}
        starts = [row["time_first_ns"] for row in tables.get("connections", ()) if "time_first_ns" in row]
        first_ns = min(starts, default=0)
        self.inputs = inputs or [
            {
                "name": "a.pcap",
                "format": "pcap",
                "packet_count": 9,
                "time_first_ns": first_ns,
                "time_last_ns": first_ns + 2_000_000_000,
                "is_cut_short": False,
            }
        ]
        self.packet_count = 9
        self.tcp_packet_count = 8
        self.first_packet = (0, 74)

    def row_count(self, table: str) -> int:
        assert self._is_whole(table), "rows must be counted before a column is moved out"
        return len(self.tables.get(table, ()))

    def masks(self, table: str) -> dict[str, Any]:
        assert self._is_whole(table), "masks must be requested before a column is moved out"
        return masks_of(table, self.tables.get(table, ()))

    def column(self, table: str, name: str) -> Any:
        assert (table, name) not in self.taken, "columns are moved out once"
        self.taken.append((table, name))
        if table not in self._columns:
            self._columns[table] = columns_of(table, self.tables.get(table, ()))
        return self._columns[table][name]

    def _is_whole(self, table: str) -> bool:
        return all(taken != table for taken, _ in self.taken)


def core(tables: Rows, error: Exception | None = None) -> Any:
    """A module like iscsitrace._core; ``calls`` keeps the arguments of each read."""
    calls: list[dict[str, Any]] = []

    def read(sources: Sequence[Any], **options: Any) -> Pass:
        calls.append({"sources": list(sources), **options})
        if error is not None:
            raise error
        return Pass(tables)

    return SimpleNamespace(
        read=read, CaptureError=CoreError, OPERATIONS=OPERATIONS, VERSION=iscsitrace.__version__, calls=calls
    )


MS = 1_000_000

TRACE: dict[str, Sequence[dict[str, Any]]] = {
    "sessions": [
        {
            "session": 0,
            "session_type": "normal",
            "initiator_name": "iqn.2026-11.example:host",
            "target_name": "iqn.2026-11.example:disk",
            "isid": "00023d000001",
            "tsih": 1,
            "auth_method": "None",
            "connection_count": 1,
            "cycle_count": 3,
            "end": "open",
        }
    ],
    "connections": [
        {
            "connection": 0,
            "is_iscsi": False,
            "initiator_address": "10.0.0.1",
            "initiator_port": 50_000,
            "target_address": "10.0.0.2",
            "target_port": 22,
        },
        {
            "connection": 1,
            "session": 0,
            "cid": 0,
            "is_iscsi": True,
            "initiator_address": "fd00::1",
            "initiator_port": 50_001,
            "target_address": "fd00::2",
            "target_port": 3260,
            "roles_from": "syn",
            "header_digest": "none",
            "data_digest": "crc32c",
            "digest_source": "login",
            "rtt_to_target_min_ns": 4 * MS,
            "stream_bytes_to_target": 1000,
            "captured_bytes_to_target": 1000,
            "explained_bytes_to_target": 1000,
            "pdu_count_to_target": 3,
            "stream_bytes_to_initiator": 8000,
            "captured_bytes_to_initiator": 6000,
            "gap_bytes_to_initiator": 2000,
            "explained_bytes_to_initiator": 4000,
            "pdu_count_to_initiator": 3,
            "missing_pdu_count_to_initiator": 1,
        },
    ],
    "parameters": [
        {
            "connection": 1,
            "session": 0,
            "key": "MaxBurstLength",
            "initiator_value": "16776192",
            "target_value": "262144",
            "effective_initiator": "262144",
            "effective_target": "262144",
            "source": "negotiated",
        },
        {
            "connection": 1,
            "session": 0,
            "key": "MaxRecvDataSegmentLength",
            "initiator_value": "262144",
            "target_value": None,
            "effective_initiator": "262144",
            "effective_target": "8192",
            "source": "declared",
        },
    ],
    "cycles": [
        {
            "cycle": 0,
            "session": 0,
            "connection": 1,
            "lun": 1,
            "initiator_task_tag": 0x10,
            "operation": "read",
            "is_read": True,
            "lba": 64,
            "bytes": 65_536,
            "data_bytes": 65_536,
            "command_first_ns": 100 * MS,
            "command_last_ns": 100 * MS,
            "data_first_ns": 104 * MS,
            "data_last_ns": 106 * MS,
            "status_ns": 106 * MS,
            "next_command_ns": 107 * MS,
            "queue_depth": 1,
            "idle_ns": 4 * MS,
            "data_pdu_count": 8,
            "data_packet_count": 46,
            "status": 0,
            "command_frame": 10,
            "data_first_frame": 12,
            "data_last_frame": 20,
            "status_frame": 20,
            "is_complete": True,
            "is_status_in_data": True,
        },
        {
            "cycle": 1,
            "session": 0,
            "connection": 1,
            "lun": 1,
            "initiator_task_tag": 0x11,
            "operation": "write",
            "is_write": True,
            "lba": 128,
            "bytes": 262_144,
            "data_bytes": 262_144,
            "command_first_ns": 107 * MS,
            "command_last_ns": 107 * MS,
            "r2t_first_ns": 111 * MS,
            "data_first_ns": 112 * MS,
            "data_last_ns": 120 * MS,
            "status_ns": 150 * MS,
            "queue_depth": 1,
            "data_pdu_count": 32,
            "data_packet_count": 182,
            "r2t_count": 1,
            "solicited_bytes": 262_144,
            "status": 0,
            "command_frame": 22,
            "data_first_frame": 24,
            "data_last_frame": 200,
            "status_frame": 210,
            "is_complete": True,
            "has_retransmission": True,
        },
        {
            "cycle": 2,
            "session": 0,
            "connection": 1,
            "lun": 0,
            "initiator_task_tag": 0x12,
            "operation": "test_unit_ready",
            "command_first_ns": 160 * MS,
            "command_last_ns": 160 * MS,
            "queue_depth": 2,
            "command_frame": 220,
        },
    ],
    "counters": [
        {
            "name": "capture_gap",
            "connection": 1,
            "severity": "data_loss",
            "count": 2,
            "first_frame": 30,
            "meaning": "holes",
            "advice": "a larger buffer",
        },
        {"name": "not_tcp", "severity": "info", "count": 1, "first_frame": 1, "meaning": "others", "advice": "none"},
    ],
}
"""A trace of one session: a read, a write with R2T, and a command without status."""


def with_waits(rows: Sequence[dict[str, Any]], *connections: dict[str, Any]) -> tuple[Table, Waits]:
    """Commands and their waits."""
    cycles = table("cycles", *rows)
    return cycles, waits.of(cycles, table("connections", *connections))
