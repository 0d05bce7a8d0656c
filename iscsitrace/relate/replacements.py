"""The Login Request by which a session took the place of another: session reinstatement (RFC 7143 section 6.3.5).

It ends the other session if that is still open, and what a host does to the old connection after it follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iscsitrace.tables.nulls import known
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


def of_trace(source: Source) -> dict[int, LoginRequest]:
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


def over(sessions: Table, before_ns: int, *ends: str) -> set[int]:
    """The sessions that ended in these ways, or whose work had gone on in another one by then: their connections may be
    open.
    """
    words = CATEGORIES["session_end"]
    has_ended = np.isin(sessions.raw("end"), [words.index(end) for end in ends])
    went_on = {old for old, at_ns in _went_on_ns(sessions).items() if at_ns < before_ns}
    return went_on | set(sessions.raw("session")[has_ended].tolist())
