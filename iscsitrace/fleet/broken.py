"""What broke in a dataset: one row for each session with a failure, the worst first, with the frames that show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from iscsitrace.fleet.sql import COMMANDS, Database
from iscsitrace.wording import cells

FRAMES: Final = 5
"""Most frames that are named for each kind of failure."""
_ENDS: Final = {
    "reset": "the connection was reset",
    "closed": "the connection was closed without a logout",
    "reinstated": "the session was reinstated by a new login",
    "refused": "the target refused the login",
}
_OF_OUTAGES: Final = ("reset", "reinstated")

Key = tuple[str, int | None]
"""A tap and a session of it; None for commands whose session is unknown."""


@dataclass
class Broken:
    """A session with a failure."""

    tap: str
    session: int | None
    initiator: str = cells.NOTHING
    target: str = cells.NOTHING
    what: list[str] = field(default_factory=list)
    """What happened, the worst first, without full stops."""
    has_failed: bool = False
    """Whether it ended in failure, or commands never got a status; else it only has errors, or no logout."""
    lost_ns: int = 0
    """Time until the session was there again, or the longest wait of a command that never got a status."""
    count: int = 0
    """Commands with an error or without a status."""
    time_ns: int | None = None
    """The first of it."""
    frames: list[int] = field(default_factory=list)
    """Frames of the ring, until they are located."""
    capture: str = ""
    path: str = ""
    address: str = ""
    port: int | None = None
    """Of the initiator, in one connection of the session."""
    finding: str = ""
    """The name of the finding that tells most of it; empty where no diagnosis found it."""

    @property
    def rank(self) -> tuple[Any, ...]:
        """The worst first: failures, then by time lost and by commands."""
        return (not self.has_failed, -self.lost_ns, -self.count, self.tap, -1 if self.session is None else self.session)

    def add(self, what: str, time_ns: int | None, frames: Iterable[int | None], count: int = 0) -> None:
        """Something that happened."""
        self.what.append(what)
        self.count += count
        if time_ns is not None:
            self.time_ns = time_ns if self.time_ns is None else min(time_ns, self.time_ns)
        self.frames += [frame for frame in frames if frame is not None]


def find(database: Database) -> list[Broken]:
    """The sessions with a failure, the worst first. InputInvalid for a dataset without the tables of commands.

    What a diagnosis found is told in its words; of other sessions, and of a dataset without findings, what the tables
    of sessions and commands show.
    """
    database.require(COMMANDS)
    found = _of_tables(database)
    alone = _diagnosed(database, found) if "findings" in database.tables else []
    _name(database, found)
    return sorted([*found.values(), *alone], key=lambda each: each.rank)


def _diagnosed(database: Database, found: dict[Key, Broken]) -> list[Broken]:
    """Put the failures that were found in place of what the tables show; returns those without a session."""
    alone: dict[tuple[str, int], Broken] = {}
    told: set[tuple[str, int | None, int | None]] = set()
    for tap, session, sessions, connection, name, text, leads, cost_ns, first_ns, frames in database.query(
        _FAILURES
    ).rows:
        if session is None:
            broken = alone.setdefault((tap, connection), Broken(tap, None))
        else:
            broken = found.setdefault((tap, session), Broken(tap, session))
        for other in map(int, sessions.split()):
            # sessions that took each other's place broke once
            if other != session:
                found.pop((tap, other), None)
        key = (tap, session, connection if session is None else None)
        if key not in told:
            told.add(key)
            broken.what, broken.frames, broken.time_ns, broken.count = [], [], None, 0
            broken.lost_ns = broken.lost_ns if cost_ns is None else 0
            broken.finding = name
        broken.has_failed |= leads
        broken.lost_ns = max(broken.lost_ns, cost_ns or 0)
        broken.add(text.removesuffix("."), first_ns, map(int, frames.split()), 1)
    _name_alone(database, alone)
    return list(alone.values())


def _of_tables(database: Database) -> dict[Key, Broken]:
    """What the tables of sessions and commands show."""
    found: dict[Key, Broken] = {}

    def of(tap: str, session: int | None) -> Broken:
        return found.setdefault((tap, session), Broken(tap, session))

    for tap, session, end, kind, first_ns, last_ns, relogin_ns in database.query(_SESSIONS).rows:
        if end == "closed" and kind == "discovery":
            continue
        broken = of(tap, session)
        broken.has_failed |= end != "closed"
        lost_ns = max(0, relogin_ns - last_ns) if relogin_ns is not None and end in _OF_OUTAGES else 0
        again = f", and was there again after {lost_ns / 1e9:.3f} s" if lost_ns else ""
        broken.lost_ns = max(broken.lost_ns, lost_ns)
        broken.add(f"{_ENDS[end]}{again}", first_ns if end == "refused" else last_ns, ())
    for tap, session, count, wait_ns, first_ns, frames in database.query(_LOST).rows:
        broken = of(tap, session)
        broken.has_failed = True
        broken.lost_ns = max(broken.lost_ns, wait_ns)
        noun = "command" if count == 1 else "commands"
        broken.add(f"{count:,} {noun} without status, at most {wait_ns / 1e9:.3f} s", first_ns, frames[:FRAMES], count)
    for tap, session, text, count, first_ns, frames in database.query(_ERRORS).rows:
        of(tap, session).add(
            f"{text}: {count:,} {'command' if count == 1 else 'commands'}", first_ns, frames[:FRAMES], count
        )
    return found


def _name(database: Database, found: dict[Key, Broken]) -> None:
    """Put in the names and addresses, and where frames are."""
    for tap, session, initiator, target, address, port, last_frame in database.query(_ENDPOINTS).rows:
        broken = found.get((tap, session))
        if broken is None:
            continue
        broken.initiator, broken.target, broken.address, broken.port = initiator, target, address, port
        broken.frames = broken.frames or [last_frame]
    _locate(database, found.values())


def _name_alone(database: Database, found: dict[tuple[str, int], Broken]) -> None:
    """The same for connections without a session."""
    for tap, connection, initiator, port, target, last_frame in database.query(_ADDRESSES).rows:
        broken = found.get((tap, connection))
        if broken is not None:
            broken.initiator, broken.target, broken.address, broken.port = initiator, target, initiator, port
            broken.frames = broken.frames or [last_frame]
    _locate(database, found.values())


def _locate(database: Database, found: Iterable[Broken]) -> None:
    """Put in the capture of the first frame, and the numbers that frames have there."""
    captures = database.query(_CAPTURES).rows
    for broken in found:
        holds = [row for row in captures if row[0] == broken.tap and row[3] <= min(broken.frames, default=0) < row[4]]
        if holds:
            _, broken.capture, broken.path, first, after = holds[0]
            broken.frames = sorted({frame - first + 1 for frame in broken.frames if frame < after})


def display_filter(broken: Broken) -> str:
    """Wireshark's display filter for the frames in the capture; empty without one."""
    frames = ", ".join(map(str, broken.frames))
    return f"frame.number in {{{frames}}}" if broken.capture else ""


def command(broken: Broken) -> Sequence[str]:
    """The command that shows the session in that capture, as its arguments; empty without one."""
    if not broken.capture or broken.port is None:
        return ()
    return ("iscsitrace", "diagnose", "-f", f"host {broken.address} and port {broken.port}", broken.path)


_SESSIONS: Final = """
SELECT s.tap, s.session, s."end", s.session_type, s.time_first_ns, s.time_last_ns, min(r.time_first_ns)
FROM sessions s LEFT JOIN sessions r ON r.tap = s.tap AND r.replaces = s.session
WHERE s."end" NOT IN ('logout', 'open') GROUP BY ALL ORDER BY s.tap, s.session
"""
_LOST: Final = """
SELECT tap, session, count(*), max(end_ns - command_first_ns), min(command_first_ns),
    list(command_frame ORDER BY command_frame)
FROM commands WHERE is_lost GROUP BY ALL ORDER BY tap, session
"""
_ERRORS: Final = """
SELECT tap, session, status_text, count(*) AS amount, min(status_ns), list(status_frame ORDER BY status_frame)
FROM commands WHERE is_error GROUP BY ALL ORDER BY tap, session, amount DESC, status_text
"""
_ENDPOINTS: Final = """
SELECT n.tap, n.session, coalesce(any_value(s.initiator_name), arg_min(n.initiator_address, n.connection)),
    coalesce(any_value(s.target_name), arg_min(n.target_address, n.connection)),
    arg_min(n.initiator_address, n.connection), arg_min(n.initiator_port, n.connection), max(n.frame_last)
FROM connections n LEFT JOIN sessions s ON s.tap = n.tap AND s.session = n.session
WHERE n.is_iscsi GROUP BY n.tap, n.session
"""
_FAILURES: Final = """
SELECT tap, session, sessions, connection, name, text, is_leading, cost_ns, time_first_ns, frames FROM findings
WHERE rank = 'failure' AND severity <> 'info'
ORDER BY is_leading DESC, cost_ns DESC NULLS LAST, time_first_ns, tap, session, connection, name
"""
_ADDRESSES: Final = """
SELECT tap, connection, initiator_address, initiator_port, target_address, frame_last FROM connections
WHERE session IS NULL
"""
_CAPTURES: Final = """
SELECT tap, capture, path, first_frame, first_frame + frame_count FROM captures WHERE frame_count > 0
ORDER BY tap, first_frame
"""
