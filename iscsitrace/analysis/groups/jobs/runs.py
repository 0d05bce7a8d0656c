"""Runs: the reads or writes of one connection without an idle gap between bursts of I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures import pauses
from iscsitrace.analysis.measures.intervals import merged, union_length
from iscsitrace.analysis.session import path
from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]
OF_THE_WORK: Final = 0.25
"""Share of the usual I/O size from which on a command is part of a run: smaller ones are metadata and remainders."""


@dataclass(frozen=True)
class Run:
    """Reads or writes of one connection, without an idle gap between bursts of I/O."""

    connection: int
    session: int | None
    host: str
    """Name of the initiator, or its address."""
    target: str
    has_names: bool
    """Whether both are names."""
    path_ns: int | None
    operation: str
    block_bytes: int
    """I/O size of most bytes."""
    bytes: int
    busy_ns: int
    """Time with commands in flight."""
    first_ns: int
    """Time of the first command."""
    last_ns: int
    """Time of the last status."""
    last_row: int
    """Row of its last command in ``cycles``."""

    @property
    def to_target(self) -> bool:
        """Direction of its data."""
        return self.operation == "write"

    @property
    def length_ns(self) -> int:
        """From first command to last status."""
        return self.last_ns - self.first_ns

    @property
    def bytes_per_s(self) -> float:
        """Throughput over that time."""
        return self.bytes * 1e9 / max(self.length_ns, 1)

    @property
    def label(self) -> str:
        """Its name in texts."""
        return f"connection {self.connection}"


def of_trace(source: Source) -> list[Run]:
    """Every run of every iSCSI connection."""
    cycles = source("cycles")
    words = cycles.words("operation")
    codes = [words.index(word) for word in ("read", "write") if word in words]
    is_work = np.isin(cycles.raw("operation"), codes) & (cycles.raw("data_bytes") > 0) & cycles.raw("is_complete")
    rows = np.flatnonzero(is_work)
    if not len(rows):
        return []
    names = {
        row["session"]: (row["initiator_name"], row["target_name"])
        for row in source("sessions").rows(("session", "initiator_name", "target_name"))
    }
    wanted = ("connection", "session", "is_iscsi", "initiator_address", "target_address")
    members = {
        row["connection"]: row for row in source("connections").rows((*wanted, *path.COLUMNS)) if row["is_iscsi"]
    }
    of_connection = cycles.raw("connection")[rows]
    found = []
    order = np.argsort(of_connection, kind="stable")
    connections, firsts = np.unique(of_connection[order], return_index=True)
    for connection, own in zip(connections.tolist(), np.split(rows[order], firsts[1:]), strict=True):
        row = members.get(connection)
        if row is None:
            continue
        host, target = names.get(row["session"], (None, None))
        who = {
            "connection": connection,
            "session": row["session"],
            "host": host or row["initiator_address"],
            "target": target or row["target_address"],
            "has_names": None not in (host, target),
            "path_ns": path.round_trip_ns(row),
        }
        found += [Run(**who, **what) for what in _runs(cycles, own)]
    return found


def _runs(cycles: Table, rows: Array) -> Iterator[dict[str, Any]]:
    """The runs of one connection."""
    begins, ends = cycles.raw("command_first_ns"), cycles.raw("status_ns")
    rows = rows[np.argsort(begins[rows], kind="stable")]
    starts, stops = merged(begins[rows], ends[rows])
    if not len(starts):
        return
    gaps = starts[1:] - stops[:-1]
    breaks = starts[1:][gaps > pauses.longest_ns(gaps)]
    for part in np.split(rows, np.searchsorted(begins[rows], breaks)):
        moved = cycles.raw("data_bytes")[part].astype(np.int64)
        is_write = cycles.raw("is_write")[part]
        operation = "write" if 2 * moved[is_write].sum() > moved.sum() else "read"
        is_own = is_write == (operation == "write")
        sizes, place = np.unique(moved[is_own], return_inverse=True)
        block = int(sizes[np.bincount(place, weights=moved[is_own]).argmax()])
        own = part[is_own & (moved >= OF_THE_WORK * block)]
        yield {
            "operation": operation,
            "block_bytes": block,
            "bytes": int(cycles.raw("data_bytes")[own].astype(np.int64).sum()),
            "busy_ns": union_length(begins[own], ends[own]),
            "first_ns": int(begins[own].min()),
            "last_ns": int(ends[own].max()),
            "last_row": int(own[ends[own].argmax()]),
        }
