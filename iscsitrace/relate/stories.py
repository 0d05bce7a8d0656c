"""Stories: sessions that took each other's place, and the connections by which an initiator tried to reach a target.

A session that is lost, the refused logins and unanswered SYNs after it, and the session that replaces it are one story
(docs/method.md, section 11). Every session belongs to exactly one, and so does every connection of one; so do
connections without a session that went to a known portal.

The session that a Login Request replaces ends if it is still open (session reinstatement, RFC 7143 section 6.3.5). What
a host does to the old connection after it follows from it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from iscsitrace.relate.portals import Portals
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import NumberedRows
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Source, Table


@dataclass(frozen=True)
class LoginRequest:
    """When it came, and in which frame."""

    at_ns: int
    frame: int


def first_requests(source: Source) -> dict[int, LoginRequest]:
    """The first of each connection, in order of time; ``source`` is the method ``table`` of a trace."""
    logins = source("logins")
    asked = logins.select(known(logins, "request_ns"))
    found: dict[int, LoginRequest] = {}
    columns = (asked.raw(name).tolist() for name in ("connection", "request_ns", "request_frame"))
    for connection, at_ns, frame in sorted(zip(*columns, strict=True), key=lambda row: row[1]):
        found.setdefault(connection, LoginRequest(at_ns, frame))
    return found


def replacements(source: Source) -> dict[int, LoginRequest]:
    """By the session whose place was taken; ``source`` is the method ``table`` of a trace."""
    sessions, connections = source("sessions"), source("connections")
    after = sessions.select(known(sessions, "replaces"))
    if not len(after):
        return {}
    old_of = dict(zip(after.raw("session").tolist(), after.raw("replaces").tolist(), strict=True))
    session_of = dict(zip(connections.raw("connection").tolist(), connections.raw("session").tolist(), strict=True))
    found: dict[int, LoginRequest] = {}
    for connection, request in first_requests(source).items():
        old = old_of.get(session_of[connection])
        if old is not None:
            found.setdefault(old, request)
    return found


def _went_on_ns(sessions: Table) -> dict[int, int]:
    """When the first session with commands began in the place of each, by number; without those that none replaced."""
    columns = ("session", "replaces", "time_first_ns", "cycle_count")
    after = sessions.select(known(sessions, "replaces"))
    found: dict[int, int] = {}
    # the last first: in the place of a session without commands there may be another with them
    rows = zip(*(after.raw(name).tolist() for name in columns), strict=True)
    for session, old, begun_ns, command_count in sorted(rows, reverse=True):
        at_ns = begun_ns if command_count else found.get(session)
        if at_ns is not None:
            found[old] = at_ns
    return found


def sessions_over(sessions: Table, before_ns: int, *ends: str) -> set[int]:
    """The sessions that ended in these ways, or whose work had gone on in another one by then: their connections may be
    open.
    """
    words = CATEGORIES["session_end"]
    has_ended = np.isin(sessions.raw("end"), [words.index(end) for end in ends])
    went_on = {old for old, at_ns in _went_on_ns(sessions).items() if at_ns < before_ns}
    return went_on | set(sessions.raw("session")[has_ended].tolist())


Place = tuple[str, str, int]
"""Addresses of initiator and target, and the target's port."""

_COLUMNS = (
    *("connection", "session", "cid", "is_iscsi", "initiator_address", "target_address", "target_port"),
    *("syn_ns", "syn_frame", "syn_ack_ns", "is_refused", "frame_first", "frame_last", "time_first_ns", "time_last_ns"),
    *("header_digest", "data_digest", "has_syn", "mss_bytes_to_target", "mss_bytes_to_initiator"),
    *(
        f"{name}_{direction}{unit}"
        for direction in ("to_target", "to_initiator")
        for name, unit in (
            *(("fin", "_ns"), ("fin", "_frame"), ("rst", "_ns"), ("rst", "_frame"), ("time_last", "_ns")),
            *(("data_last", "_ns"), ("retransmitted_packets", ""), ("retransmitted_syns", ""), ("gap_bytes", "")),
            *(("pdu_count", ""), ("missing_pdu_count", ""), ("hop_limit", ""), ("rst_hop_limit", "")),
            *(("last_pdu_opcode", ""), ("last_pdu", "_ns"), ("last_pdu", "_frame"), ("is_last_pdu_new", "")),
        )
    ),
)


_SESSION_LINKS = (
    *("session", "session_type", "initiator_name", "target_name", "replaces", "end", "cycle_count"),
    *("time_first_ns", "time_last_ns"),
)
_CONNECTION_LINKS = (
    *("connection", "session", "is_iscsi", "has_syn", "initiator_address", "target_address", "target_port"),
    "time_first_ns",
)
"""The columns that decide what belongs together: rows with all others are made when they are looked at."""


@dataclass(frozen=True)
class Story:
    """One story: its sessions and connections, each in order of time."""

    numbers: tuple[int, ...]
    """The numbers of its sessions. Empty where no login was captured, and nothing else of a session."""
    connection_numbers: tuple[int, ...]
    _session_rows: NumberedRows
    _connection_rows: NumberedRows

    @cached_property
    def sessions(self) -> tuple[dict[str, Any], ...]:
        """Its rows of ``sessions``."""
        return tuple(self._session_rows[number] for number in self.numbers)

    @cached_property
    def connections(self) -> tuple[dict[str, Any], ...]:
        """Its rows of ``connections``."""
        return tuple(self._connection_rows[number] for number in self.connection_numbers)

    @property
    def is_discovery(self) -> bool:
        """Whether all of it is discovery."""
        return bool(self.numbers) and all(row["session_type"] == "discovery" for row in self.sessions)


def find(source: Source) -> list[Story]:
    """The stories of a trace that was read with any tables, in order of their first session or connection."""
    rows = NumberedRows(source("sessions"), "session"), NumberedRows(source("connections"), "connection", _COLUMNS)
    connections = list(source("connections").rows(_CONNECTION_LINKS))
    sessions = sorted(source("sessions").rows(_SESSION_LINKS), key=lambda row: (row["time_first_ns"], row["session"]))
    of_session: dict[int, list[dict[str, Any]]] = {}
    for row in connections:
        if row["session"] is not None:
            of_session.setdefault(row["session"], []).append(row)
    portals = Portals.of(source)
    tries = [row for row in connections if row["session"] is None and _is_try(row, portals)]
    chains = _chains(sessions, of_session)
    alone: dict[Place, list[dict[str, Any]]] = {}
    places = _places(chains, of_session) if tries else {}
    for row in tries:
        near = _nearest(row, places.get(_place(row), ()))
        (alone.setdefault(_place(row), []) if near is None else near.tries).append(row)
    found = [
        Story(
            tuple(row["session"] for row in chain.sessions),
            _in_time([*chain.tries, *(row for each in chain.sessions for row in of_session.get(each["session"], ()))]),
            *rows,
        )
        for chain in chains
    ]
    found.sort(key=lambda story: min(story.numbers))
    without = [Story((), _in_time(tries), *rows) for tries in alone.values()]
    return found + sorted(without, key=lambda story: story.connection_numbers[0])


def _places(chains: Iterable[_Chain], of_session: Mapping[int, Sequence[dict[str, Any]]]) -> dict[Place, list[_Chain]]:
    """The chains with connections at each place."""
    found: dict[Place, list[_Chain]] = {}
    for chain in chains:
        for place in {_place(row): None for each in chain.sessions for row in of_session.get(each["session"], ())}:
            found.setdefault(place, []).append(chain)
    return found


def _is_try(row: dict[str, Any], portals: Portals) -> bool:
    return bool(row["is_iscsi"] or (row["has_syn"] and portals.has(row["target_address"], row["target_port"])))


def _place(row: dict[str, Any]) -> Place:
    return row["initiator_address"], row["target_address"], row["target_port"]


@dataclass
class _Chain:
    """Sessions, each after the one that it replaced, and the connections without a session between them."""

    sessions: list[dict[str, Any]]
    tries: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def times_ns(self) -> list[int]:
        """The first packet of each session, ascending."""
        return [row["time_first_ns"] for row in self.sessions]


def _chains(sessions: Sequence[dict[str, Any]], of_session: Mapping[int, Sequence[dict[str, Any]]]) -> list[_Chain]:
    """The sessions, each after the one that it replaced, in order of time.

    An initiator may try again with another ISID: a login after one that was refused or whose session carried nothing,
    by the same names and addresses, is of its story, too. Without names (cut by a snaplen) nothing is known of that.
    """
    chain_of: dict[int, _Chain] = {}
    failed: dict[tuple[Any, ...], dict[str, Any]] = {}
    found: list[_Chain] = []
    for row in sessions:
        chain = chain_of.get(row["replaces"]) if row["replaces"] is not None else None
        is_lost = row["end"] in ("closed", "reset", "reinstated") and row["session_type"] == "normal"
        has_failed = row["end"] == "refused" or (is_lost and not row["cycle_count"])
        name = _name(row, of_session) if failed or has_failed else None
        before = failed.pop(name, None) if name is not None else None
        if chain is None and before is not None and before["time_last_ns"] <= row["time_first_ns"]:
            chain = chain_of[before["session"]]
        if chain is None:
            chain = _Chain([])
            found.append(chain)
        chain.sessions.append(row)
        chain_of[row["session"]] = chain
        if has_failed and name is not None:
            failed[name] = row
    return found


def _name(row: dict[str, Any], of_session: Mapping[int, Sequence[dict[str, Any]]]) -> tuple[Any, ...] | None:
    """The names and addresses of a session; None where they are not known."""
    own = of_session.get(row["session"], ())
    is_named = row["initiator_name"] and (row["target_name"] or row["session_type"] == "discovery")
    if not own or not is_named:
        return None
    return (row["session_type"], row["initiator_name"], row["target_name"], *_place(own[0]))


def _nearest(row: dict[str, Any], chains: Iterable[_Chain]) -> _Chain | None:
    """The story whose session before this try ended nearest to it."""
    best: tuple[int, _Chain] | None = None
    for chain in chains:
        place = bisect_right(chain.times_ns, row["time_first_ns"])
        if place:
            away = abs(row["time_first_ns"] - chain.sessions[place - 1]["time_last_ns"])
        else:
            away = abs(row["time_first_ns"] - chain.sessions[0]["time_last_ns"])
        if best is None or away < best[0]:
            best = away, chain
    return best[1] if best else None


def _in_time(rows: Iterable[dict[str, Any]]) -> tuple[int, ...]:
    """The numbers of these connections, in order of time."""
    return tuple(number for _, number in sorted((row["time_first_ns"], row["connection"]) for row in rows))
