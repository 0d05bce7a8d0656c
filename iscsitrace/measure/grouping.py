"""The rows of every table by session and by connection, and facts over all sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.measure import NEEDED, budget, busy, path
from iscsitrace.measure.budget import Budget, Budgets
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.session import Session
from iscsitrace.tables.nulls import known, numbers_of
from iscsitrace.tables.numbers import Partition, Rows, distinct
from iscsitrace.tables.table import Array, Source, Table

TABLES: Final = (*NEEDED, "cycles", "rounds", "nops", "task_management", "parameters", "counters", "violations")
_SPLIT: Final = (*TABLES, "busy")
"""The tables that are split; ``busy`` has the stretches of ``budget`` that are busy time."""
_BY_SESSION: Final = ("sessions", "cycles", "budget", "logical_units")
"""Tables with the session of each row."""

_CONNECTION_COLUMNS = (
    *("connection", "session", "is_iscsi", *path.BYTES),
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


class Grouping:
    """Every session and every iSCSI connection of a trace, by number; and facts over all sessions.

    A session is made anew each time: what is computed of it goes with it, so memory does not grow with all of them.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        connections = source("connections")
        self._rows = Rows(connections, _CONNECTION_COLUMNS)
        places = np.flatnonzero(connections.raw("is_iscsi")).tolist()
        of_connection, of_session = (numbers_of(connections, name).tolist() for name in ("connection", "session"))
        self._place_of: dict[int, int] = {of_connection[place]: place for place in places}
        self._session_of: dict[int, int] = {number: of_session[place] for number, place in self._place_of.items()}
        self._members: dict[int, list[int]] = {number: [] for number in source("sessions").raw("session").tolist()}
        for number, session in self._session_of.items():
            self._members.setdefault(session, []).append(number)
        numbers = [number for number in self._members if number >= 0]
        self._split = _Split(source, self._keys, lambda: self.sessions.facts)
        self.sessions = Subjects(source, numbers, self._session, self._keys, budget.of_sessions)
        self.connections = Subjects(
            source, sorted(self._place_of), self._connection, Keys(source), budget.of_connections
        )

    def _session(self, number: int) -> Session:
        return _make("session", number, self._rows_of(self._members[number]), self._split, self.sessions.budgets)

    def _connection(self, number: int) -> Session:
        if self.is_alone(number):
            return self._session(self._session_of[number]).as_connection(number)
        split, sums = self._split_by_connection, self.connections.budgets
        return _make("connection", number, self._rows_of([number]), split, sums)

    def _rows_of(self, connections: Iterable[int]) -> list[dict[str, Any]]:
        """The rows of ``connections`` of these numbers, with their bytes."""
        found = []
        for place in map(self._place_of.__getitem__, connections):
            row = self._rows[place]
            row["bytes"] = sum(row[name] for name in path.BYTES)
            found.append(row)
        return found

    def is_alone(self, connection: int) -> bool:
        """Whether it is the only connection of a session, which has the same data."""
        session = self._session_of[connection]
        return session >= 0 and len(self._members[session]) == 1

    @cached_property
    def _split_by_connection(self) -> _Split:
        return _Split(self._source, Keys(self._source), lambda: self.connections.facts)

    @cached_property
    def _keys(self) -> Keys:
        session_of = np.full(max(self._session_of, default=-1) + 2, -1, dtype=np.int64)
        for number, session in self._session_of.items():
            session_of[number] = session
        return Keys(self._source, session_of)

    def facts_together(self, members: Sequence[tuple[Iterable[int], Iterable[int]]]) -> Facts:
        """Facts over sessions that are one subject together: their numbers, and those of all connections."""
        place_of_session, place_of_connection = (_places([each[which] for each in members]) for which in (0, 1))
        own_ns = self.sessions.facts.sums_ns
        sums_ns = np.zeros((len(members), *own_ns.shape[1:]), dtype=np.int64)
        places = _looked_up(place_of_session, np.arange(len(own_ns)))
        np.add.at(sums_ns, places[places >= 0], own_ns[places >= 0])
        return Facts(self._source, Keys(self._source, place_of_connection, place_of_session), sums_ns)


class Subjects(Mapping[int, Session]):
    """Sessions or connections by number, made anew each time; only the last one is kept."""

    def __init__(
        self,
        source: Source,
        numbers: Sequence[int],
        make: Callable[[int], Session],
        keys: Keys,
        budgets_of: Callable[[Table], Budgets],
    ) -> None:
        self._source = source
        self._numbers = dict.fromkeys(numbers)
        self._make = make
        self._keys = keys
        self._budgets_of = budgets_of
        self._last: Session | None = None

    @cached_property
    def budgets(self) -> Budgets:
        """The time breakdown of each that has one."""
        return self._budgets_of(self._source("budget"))

    @cached_property
    def facts(self) -> Facts:
        """Facts over all: each has the place of its number."""
        budgets = self.budgets
        sums_ns = np.zeros((max(self._numbers, default=-1) + 1, *budgets.sums_ns.shape[1:]), dtype=np.int64)
        sums_ns[budgets.numbers] = budgets.sums_ns
        return Facts(self._source, self._keys, sums_ns)

    def __getitem__(self, number: int) -> Session:
        if number not in self._numbers:
            raise KeyError(number)
        if self._last is None or self._last.number != number:
            self._last = self._make(number)
        return self._last

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def _places(members: Sequence[Iterable[int]]) -> Array:
    """The place of each number in ``members``; -1 of others, and in the last place."""
    pairs = np.array([(number, place) for place, each in enumerate(members) for number in each], dtype=np.int64)
    numbers, places = pairs.reshape(-1, 2).T
    found = np.full(numbers.max(initial=-1) + 2, -1, dtype=np.int64)
    found[numbers] = places
    return found


def sessions_of(source: Source) -> dict[int, Session]:
    """Every session of a trace, by number."""
    return dict(Grouping(source).sessions)


def _make(kind: str, number: int, rows: list[dict[str, Any]], split: _Split, sums: Mapping[int, Budget]) -> Session:
    senders = split.senders(row["connection"] for row in rows)
    rest = _SubjectRows(split, number), sums.get(number), split.facts, tuple(split.luns.get(number, ()))
    return Session(number, rows, senders, *rest, is_session=kind == "session")


class _Split:
    """The tables of a trace split by session or connection; each is split when it is first used."""

    def __init__(self, source: Source, keys: Keys, facts: Callable[[], Facts]) -> None:
        """``facts`` makes those over the same sessions or connections."""
        self._source = source
        self._keys = keys
        self._facts = facts
        self._parts: dict[str, Partition] = {}
        self._senders = Rows(source("senders"))

    def rows(self, name: str, number: int) -> Table:
        """The rows of that session or connection."""
        if name not in self._parts:
            self._parts[name] = Partition(self._source(name), self._keys(name))
        return self._parts[name].rows(number)

    def busy(self, number: int) -> Table:
        """The stretches of ``budget`` of that session or connection that are busy time."""
        stretches = self.rows("budget", number)
        return stretches.select(stretches.each(busy.uses) == busy.BUSY)

    def senders(self, connections: Iterable[int]) -> list[dict[str, Any]]:
        """The rows of ``senders`` of these connections, in the order of the table."""
        places = sorted(place for number in connections for place in self._places.get(number, ()))
        return [self._senders[place] for place in places]

    @cached_property
    def _places(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for place, number in enumerate(self._source("senders").raw("connection").tolist()):
            found.setdefault(number, []).append(place)
        return found

    @property
    def facts(self) -> Facts:
        """Those of the same sessions or connections."""
        return self._facts()

    @cached_property
    def luns(self) -> dict[int, list[int]]:
        """The logical units that each session or connection reads, writes or erases, ascending."""
        cycles, keys = self._source("cycles"), self._keys("cycles")
        rows = np.flatnonzero(cycles.each(is_data_command) & known(cycles, "lun") & (keys >= 0))
        luns, place = distinct(cycles.raw("lun")[rows])
        pairs, _ = distinct(keys[rows] * max(len(luns), 1) + place)
        found: dict[int, list[int]] = {}
        for pair in pairs.tolist():
            found.setdefault(pair // len(luns), []).append(int(luns[pair % len(luns)]))
        return found


class _SubjectRows(Mapping[str, Table]):
    """The rows of one session, or connection, in every table."""

    def __init__(self, split: _Split, number: int) -> None:
        self._split = split
        self._number = number
        self._found: dict[str, Table] = {}

    def __getitem__(self, name: str) -> Table:
        if name not in self._found:
            if name not in _SPLIT:
                raise KeyError(name)
            own = self._split.busy(self._number) if name == "busy" else self._split.rows(name, self._number)
            self._found[name] = own
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_SPLIT)

    def __len__(self) -> int:
        return len(_SPLIT)


class Keys:
    """The subject of each row of every table, such as its session or connection; -1 for none."""

    def __init__(self, source: Source, of_connection: Array | None = None, of_session: Array | None = None) -> None:
        """Subjects by number of connection and of session, each with -1 in a last place: by default sessions by their
        number, or connections by theirs where nothing is given.
        """
        self._source = source
        self._of_connection = of_connection
        self._of_session = of_session

    def __call__(self, name: str) -> Array:
        """The key of each row of the table of that name."""
        table = self._source(name)
        if self._of_connection is not None and name in _BY_SESSION:
            sessions = session_of_stretches(table) if name == "budget" else numbers_of(table, "session")
            return sessions if self._of_session is None else _looked_up(self._of_session, sessions)
        if name == "rounds":
            numbers = numbers_of(self._source("cycles"), "connection")[table.raw("cycle")]
        else:
            numbers = numbers_of(table, "connection")
        return numbers if self._of_connection is None else _looked_up(self._of_connection, numbers)


def _looked_up(found: Array, numbers: Array) -> Array:
    """The value of each number; that of the last place for those beyond it, and for -1."""
    return np.asarray(found[numbers.clip(max=len(found) - 1)])


def session_of_stretches(stretches: Table) -> Array:
    """The session whose time each stretch is; -1 for stretches of one of several connections."""
    session, is_own = numbers_of(stretches, "session"), ~known(stretches, "connection")
    session[np.isin(session, np.unique(session[is_own])) & ~is_own] = -1
    return session
