"""The rows of every table by session and by connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures import budget, busy
from iscsitrace.analysis.measures.budget import Budget
from iscsitrace.analysis.measures.nulls import known, numbers_of
from iscsitrace.analysis.session import NEEDED, path
from iscsitrace.analysis.session.session import Session
from iscsitrace.tables.partition import Partition
from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]
TABLES: Final = (*NEEDED, "cycles", "rounds", "nops", "task_management", "parameters", "counters")
_SPLIT: Final = (*TABLES, "busy")
"""The tables that are split; ``busy`` has the stretches of ``budget`` that are busy time."""

_CONNECTION_COLUMNS = (
    *("connection", "session", "is_iscsi", *path.COLUMNS),
    *(
        f"{name}_{direction}"
        for name in (
            "explained_bytes",
            "gap_bytes",
            "pdu_count",
            "missing_pdu_count",
            "digest_errors",
            "packets",
            "retransmitted_packets",
            "reordered_packets",
        )
        for direction in ("to_target", "to_initiator")
    ),
    *("reordered_late_to_target_max_ns", "reordered_late_to_initiator_max_ns"),
    *("fin_to_target_ns", "rst_to_target_ns", "fin_to_initiator_ns", "rst_to_initiator_ns"),
    *("frame_first", "frame_last", "time_first_ns", "time_last_ns"),
)


def sessions_and_connections_of(source: Source) -> tuple[dict[int, Session], dict[int, Session]]:
    """Every session and every iSCSI connection of a trace, by number."""
    rows = _connections(source)
    sessions = _sessions(source, rows)
    members = Counter(row["session"] for row in rows)
    lonely = {row["connection"]: row["session"] for row in rows if members[row["session"]] == 1}
    connections = {
        number: sessions[session].as_connection(number) for number, session in lonely.items() if session in sessions
    }
    others = [row for row in rows if row["connection"] not in connections]
    if others:
        split, sums = _Split(source, _connection_keys(source)), budget.of_connections(source("budget"))
        connections |= {row["connection"]: _make("connection", row["connection"], [row], split, sums) for row in others}
    return sessions, dict(sorted(connections.items()))


def sessions_of(source: Source) -> dict[int, Session]:
    """Every session of a trace, by number."""
    return _sessions(source, _connections(source))


def _connections(source: Source) -> list[dict[str, Any]]:
    rows = [row for row in source("connections").rows(_CONNECTION_COLUMNS) if row["is_iscsi"]]
    path.without_outliers(rows, source("senders").rows(("connection", "to_target", "rtt_path_ns")))
    for row in rows:
        row["bytes"] = row["stream_bytes_to_target"] + row["stream_bytes_to_initiator"]
    return rows


def _sessions(source: Source, rows: list[dict[str, Any]]) -> dict[int, Session]:
    session_of = np.full(max((row["connection"] for row in rows), default=-1) + 2, -1, dtype=np.int64)
    for row in rows:
        session_of[row["connection"]] = -1 if row["session"] is None else row["session"]
    split, sums = _Split(source, _session_keys(source, session_of)), budget.of_sessions(source("budget"))
    own: dict[int, list[dict[str, Any]]] = {number: [] for number in source("sessions").raw("session").tolist()}
    for row in rows:
        own.setdefault(row["session"], []).append(row)
    return {
        number: _make("session", number, members, split, sums) for number, members in own.items() if number is not None
    }


def _make(kind: str, number: int, rows: list[dict[str, Any]], split: _Split, sums: dict[int, Budget]) -> Session:
    senders = split.senders(row["connection"] for row in rows)
    return Session(number, rows, senders, _Rows(split, number), sums.get(number), is_session=kind == "session")


class _Split:
    """The tables of a trace split by session or connection; each is split when it is first used."""

    def __init__(self, source: Source, keys: Callable[[str], Array]) -> None:
        self._source = source
        self._keys = keys
        self._parts: dict[str, Partition] = {}

    def rows(self, name: str, number: int) -> Table:
        """The rows of that session or connection."""
        if name not in self._parts:
            table, keys = self._busy() if name == "busy" else (self._source(name), self._keys(name))
            self._parts[name] = Partition(table, keys)
        return self._parts[name].rows(number)

    def senders(self, connections: Iterable[int]) -> list[dict[str, Any]]:
        """The rows of ``senders`` of these connections, in the order of the table."""
        places = sorted(place for number in connections for place in self._places.get(number, ()))
        return [self._senders[place] for place in places]

    @cached_property
    def _senders(self) -> list[dict[str, Any]]:
        return list(self._source("senders").rows())

    @cached_property
    def _places(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for place, row in enumerate(self._senders):
            found.setdefault(row["connection"], []).append(place)
        return found

    def _busy(self) -> tuple[Table, Array]:
        """The stretches of ``budget`` that are busy time, with their keys."""
        stretches = self._source("budget")
        is_busy = busy.uses(stretches) == busy.BUSY
        return stretches.select(is_busy), self._keys("budget")[is_busy]


class _Rows(Mapping[str, Table]):
    """The rows of one session, or connection, in every table."""

    def __init__(self, split: _Split, number: int) -> None:
        self._split = split
        self._number = number
        self._found: dict[str, Table] = {}

    def __getitem__(self, name: str) -> Table:
        if name not in self._found:
            if name not in _SPLIT:
                raise KeyError(name)
            self._found[name] = self._split.rows(name, self._number)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_SPLIT)

    def __len__(self) -> int:
        return len(_SPLIT)


def _connection_keys(source: Source) -> Callable[[str], Array]:
    def keys(name: str) -> Array:
        if name == "rounds":
            return numbers_of(source("cycles"), "connection")[source("rounds").raw("cycle")]
        return numbers_of(source(name), "connection")

    return keys


def _session_keys(source: Source, session_of: Array) -> Callable[[str], Array]:
    of_connection = _connection_keys(source)

    def keys(name: str) -> Array:
        if name == "budget":
            return session_of_stretches(source(name))
        if name == "cycles":
            return numbers_of(source(name), "session")
        # connections that are not iSCSI, or none, map to the last place, which holds -1
        found: Array = session_of[of_connection(name).clip(max=len(session_of) - 1)]
        return found

    return keys


def session_of_stretches(stretches: Table) -> Array:
    """The session whose time each stretch is; -1 for stretches of one of several connections."""
    session, is_own = numbers_of(stretches, "session"), ~known(stretches, "connection")
    return np.where(is_own | ~np.isin(session, np.unique(session[is_own])), session, -1)
