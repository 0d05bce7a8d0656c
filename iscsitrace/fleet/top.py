"""What costs most in a dataset, by volume, host, hour ...: commands, parts of the time breakdown, findings.

Also what broke: one row for each session with a failure, the worst first, with the frames that show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from iscsitrace.fleet.sql import COMMANDS, PROBLEMS, TIMES, Database
from iscsitrace.measure.ranks import PERCENTILES, VALUES_MIN
from iscsitrace.wording import cells
from iscsitrace.wording.parts import BY_NAME

_HOUR: Final = "strftime(make_timestamp_ns(({} // 3600000000000) * 3600000000000), '%Y-%m-%d %H:00')"
BY: Final = {
    "volume": "volume",
    "initiator": "initiator",
    "target": "target",
    "lun": "'LUN ' || lun || ' of ' || target",
    "tap": "tap",
    "hour": _HOUR.format("command_first_ns"),
    "session": "tap || ' session ' || coalesce(session::VARCHAR, 'unknown')",
    "operation": "coalesce(operation, 'unknown')",
}
"""What commands can be told apart by, as SQL. Hours are UTC."""
LOSS_BY: Final = {
    **{name: text for name, text in BY.items() if name != "operation"},
    "lun": "coalesce('LUN ' || lun || ' of ' || target, volume)",
    "hour": _HOUR.format("time_first_ns"),
}
"""The same for time lost and findings."""
COSTS: Final = {
    "latency": "latency_ns",
    "busy": "busy_ns",
    "bytes": "bytes",
    "commands": "command_count",
    "p50": "p50_ns",
    "p99": "p99_ns",
    "max": "max_ns",
    "errors": "error_count",
    "no-status": "lost_count",
}
"""The columns of :class:`Cost` by which it is ordered, the greatest first."""


@dataclass(frozen=True)
class Cost:
    """The commands with one value."""

    label: str
    tap_count: int
    command_count: int
    bytes: int
    """Payload transferred."""
    busy_ns: int
    """Time with at least one of them in flight."""
    latency_ns: int
    """Sum of the latencies of those with a status."""
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    """Of the latencies and of the waits of commands without a status that took longer, by nearest rank; None where too
    few have one (measure/distribution.py).
    """
    timed_count: int
    """Commands that these percentiles are of."""
    open_count: int
    """Those of them without a status: they rank above all others, and a percentile at one of them is a lower bound."""
    lost_count: int
    """Commands that never got a status, and never will (column ``is_lost``)."""
    error_count: int
    """Commands with a status that a healthy device does not send."""

    @property
    def percentiles(self) -> dict[str, int | None]:
        """As `distribution.percentiles` has them."""
        found = {"n": self.timed_count, "p50": self.p50_ns, "p95": self.p95_ns, "p99": self.p99_ns, "max": self.max_ns}
        return found | ({"open_count": self.open_count} if self.open_count else {})


def top(dataset: Path | Database, by: str, cost: str, *, limit: int, tap: str | None = None) -> tuple[list[Cost], int]:
    """The ``limit`` values with the greatest cost, and the number of all values.

    All but ``operation`` have only the commands that read, write or erase data. The same traffic at two taps counts
    twice: ``tap`` selects one. Raises InputInvalid for a dataset without the tables of commands.
    """
    if isinstance(dataset, Path):
        with Database(dataset) as database:
            return top(database, by, cost, limit=limit, tap=tap)
    dataset.require(COMMANDS)
    conditions = ["label IS NOT NULL", *(["is_data"] if by != "operation" else []), *(["tap = ?"] if tap else [])]
    found = dataset.query(
        _QUERY.format(label=BY[by], conditions=" AND ".join(conditions), percentiles=_PERCENTILES), [tap] if tap else []
    )
    every = [Cost(*row) for row in found.rows]
    every.sort(key=lambda each: (-(getattr(each, COSTS[cost]) or 0), each.label))
    return every[:limit], len(every)


_QUERY: Final = """
WITH chosen AS MATERIALIZED (
    SELECT {label} AS label, tap, data_bytes, latency_ns, is_open, is_lost, is_error, command_first_ns,
        -- how long others were in flight is not known
        CASE WHEN status_ns IS NOT NULL OR is_open THEN end_ns ELSE command_first_ns END AS end_ns
    FROM commands WHERE {conditions}
), reached AS (
    SELECT label, command_first_ns, end_ns, max(end_ns) OVER (
        PARTITION BY label ORDER BY command_first_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached_ns FROM chosen
), busy AS (
    SELECT label,
        sum(greatest(end_ns - greatest(command_first_ns, coalesce(reached_ns, command_first_ns)), 0)) AS busy_ns
    FROM reached GROUP BY label
), slowest AS (
    SELECT label, coalesce(max(latency_ns) FILTER (NOT is_open), 0) AS most_ns FROM chosen GROUP BY label
), waited AS (
    SELECT chosen.*, CASE
        WHEN NOT is_open THEN latency_ns
        -- one that never got a status ranks above all that did; so does one in flight that has waited longer
        WHEN is_lost OR end_ns - command_first_ns > most_ns THEN greatest(end_ns - command_first_ns, most_ns)
    END AS waited_ns FROM chosen JOIN slowest USING (label)
)
SELECT label, count(DISTINCT tap), count(*), sum(data_bytes)::BIGINT, any_value(busy_ns)::BIGINT,
    coalesce(sum(latency_ns), 0)::BIGINT, {percentiles},
    count(waited_ns), count(waited_ns) FILTER (is_open), count(*) FILTER (is_lost), count(*) FILTER (is_error)
FROM waited JOIN busy USING (label) GROUP BY label
"""
_PERCENTILES: Final = ", ".join(
    f"CASE WHEN count(waited_ns) >= {VALUES_MIN.get(name, 1)} THEN quantile_disc(waited_ns, {percent / 100}) END"
    for name, percent in PERCENTILES.items()
)


@dataclass(frozen=True)
class LostTime:
    """The time lost with one value."""

    label: str
    tap_count: int
    session_count: int
    """Sessions that lost time, or have the finding."""
    count: int
    """Findings; stretches by session, logical unit and period, where it is a part of the time."""
    busy_ns: int
    """Busy time of all sessions; of a finding that of the sessions that have it."""
    cost_ns: int
    first_ns: int
    """Its first instant."""

    @property
    def share(self) -> float | None:
        """Share of the busy time; None where there is none."""
        return self.cost_ns / self.busy_ns if self.busy_ns else None


def losses(database: Database, by: str, cost: str, *, limit: int, tap: str | None = None) -> tuple[list[LostTime], int]:
    """The ``limit`` values that lost most, and the number of all that lost time or have the finding.

    ``cost`` is a part of the time breakdown or the name of a finding. The same traffic at two taps counts twice:
    ``tap`` selects one. Raises InputInvalid for a dataset without these tables.
    """
    is_part = cost in BY_NAME
    view = TIMES if is_part else PROBLEMS
    database.require(view)
    query = (_PART if is_part else _FINDING).format(
        view=f"(SELECT *, {LOSS_BY[by]} AS label FROM {view}{' WHERE tap = $tap' if tap else ''})"  # noqa: S608 -- our names
    )
    values = {"cost": cost, **({"tap": tap} if tap else {})}
    found = [LostTime(*row) for row in database.query(query, values).rows]
    found.sort(key=lambda each: (-each.cost_ns, -each.count, each.label))
    return found[:limit], len(found)


_PART: Final = """
SELECT label, count(DISTINCT tap) FILTER (part = $cost), count(DISTINCT (tap, session)) FILTER (part = $cost),
    count(*) FILTER (part = $cost), sum(duration_ns)::BIGINT,
    coalesce(sum(duration_ns) FILTER (part = $cost), 0)::BIGINT AS cost_ns, min(time_first_ns) FILTER (part = $cost)
FROM {view} WHERE is_busy AND label IS NOT NULL GROUP BY label HAVING cost_ns > 0
"""
_FINDING: Final = """
SELECT label, count(DISTINCT tap), count(DISTINCT (tap, session, connection)), count(*), sum(busy_ns)::BIGINT,
    coalesce(sum(cost_ns), 0)::BIGINT, min(time_first_ns)
FROM {view} WHERE name = $cost AND label IS NOT NULL GROUP BY label
"""


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


def broken_sessions(database: Database) -> list[Broken]:
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


def failure_filter(broken: Broken) -> str:
    """Wireshark's display filter for the frames in the capture; empty without one."""
    frames = ", ".join(map(str, broken.frames))
    return f"frame.number in {{{frames}}}" if broken.capture else ""


def failure_command(broken: Broken) -> Sequence[str]:
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
