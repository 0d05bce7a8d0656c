"""The rows of every table by session and by connection: the subjects of an examination. It judges nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures import budget
from iscsitrace.analysis.measures.budget import Budget
from iscsitrace.analysis.session import OF_SUBJECTS
from iscsitrace.analysis.session.subject import Subject, known
from iscsitrace.tables.table import Table

Array = NDArray[Any]
Source = Callable[[str], Table]
"""Gives the table of a name, as ``Trace.table`` does."""

TABLES: Final = (*OF_SUBJECTS, "cycles", "rounds", "nops", "task_management", "parameters", "counters")

_CONNECTION_COLUMNS = (
    *("connection", "session", "is_iscsi", "rtt_to_target_min_ns", "rtt_to_initiator_min_ns"),
    *(
        f"{name}_{direction}"
        for name in (
            "stream_bytes",
            "explained_bytes",
            "gap_bytes",
            "pdu_count",
            "missing_pdu_count",
            "packets",
            "retransmitted_packets",
        )
        for direction in ("to_target", "to_initiator")
    ),
    *("frame_first", "frame_last", "time_first_ns", "time_last_ns"),
)


def subjects_of(source: Source) -> tuple[dict[int, Subject], dict[int, Subject]]:
    """Every session and every iSCSI connection of a trace, by number."""
    rows = [row for row in source("connections").rows(_CONNECTION_COLUMNS) if row["is_iscsi"]]
    for row in rows:
        row["bytes"] = row["stream_bytes_to_target"] + row["stream_bytes_to_initiator"]
    sessions = _sessions(source, rows)
    members = Counter(row["session"] for row in rows)
    lonely = {row["connection"]: row["session"] for row in rows if members[row["session"]] == 1}
    connections = {
        number: sessions[session].as_connection(number) for number, session in lonely.items() if session in sessions
    }
    others = [row for row in rows if row["connection"] not in connections]
    if others:
        split = _split_all(source, _connection_keys(source))
        sums = budget.of_connections(source("budget"))
        connections |= {
            row["connection"]: _subject(source, "connection", row["connection"], [row], split, sums) for row in others
        }
    return sessions, dict(sorted(connections.items()))


def _sessions(source: Source, rows: list[dict[str, Any]]) -> dict[int, Subject]:
    session_of = np.full(max((row["connection"] for row in rows), default=-1) + 2, -1, dtype=np.int64)
    for row in rows:
        session_of[row["connection"]] = -1 if row["session"] is None else row["session"]
    split, sums = _split_all(source, _session_keys(source, session_of)), budget.of_sessions(source("budget"))
    own: dict[int, list[dict[str, Any]]] = {number: [] for number in source("sessions").raw("session").tolist()}
    for row in rows:
        own.setdefault(row["session"], []).append(row)
    return {
        number: _subject(source, "session", number, members, split, sums)
        for number, members in own.items()
        if number is not None
    }


def _subject(
    source: Source,
    kind: str,
    number: int,
    rows: list[dict[str, Any]],
    split: dict[str, dict[int, Table]],
    sums: dict[int, Budget],
) -> Subject:
    tables = {name: split[name].get(number) or source(name).select(slice(0, 0)) for name in TABLES}
    return Subject(f"{kind} {number}", rows, tables, sums.get(number), is_session=kind == "session")


def _split_all(source: Source, keys: Callable[[str], Array]) -> dict[str, dict[int, Table]]:
    return {name: dict(_split(source(name), keys(name))) for name in TABLES}


def _split(table: Table, keys: Array) -> Iterator[tuple[int, Table]]:
    """The rows of each key that is not negative, in the order of the table."""
    if not len(keys):
        return
    if (keys == keys[0]).all():
        # no copy of the one session that most captures have
        if keys[0] >= 0:
            yield int(keys[0]), table
        return
    # numbers of 16 bits are sorted by counting
    order = np.argsort(keys.astype(np.int16) if keys.max() < 1 << 15 else keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order[0]] - 1))
    for rows in np.split(order, starts[1:]):
        if keys[rows[0]] >= 0:
            yield int(keys[rows[0]]), table.select(rows)


def _connection_keys(source: Source) -> Callable[[str], Array]:
    def keys(name: str) -> Array:
        if name == "rounds":
            return _numbers(source("cycles"), "connection")[source("rounds").raw("cycle")]
        return _numbers(source(name), "connection")

    return keys


def _session_keys(source: Source, session_of: Array) -> Callable[[str], Array]:
    of_connection = _connection_keys(source)

    def keys(name: str) -> Array:
        if name == "budget":
            return _session_of_stretches(source(name))
        if name == "cycles":
            return _numbers(source(name), "session")
        # connections that are not iSCSI, or none, have the last place, which says -1
        connection = of_connection(name)
        return session_of[np.where((connection >= 0) & (connection < len(session_of)), connection, -1)]

    return keys


def _session_of_stretches(stretches: Table) -> Array:
    """Whose own time a stretch is: that of its session, where it has several connections, or of its only connection."""
    session, is_own = _numbers(stretches, "session"), ~known(stretches, "connection")
    return np.where(is_own | ~np.isin(session, np.unique(session[is_own])), session, -1)


def _numbers(table: Table, name: str) -> Array:
    """A column of numbers as int64, -1 for null."""
    return np.where(known(table, name), table.raw(name), 0).astype(np.int64) - ~known(table, name)
