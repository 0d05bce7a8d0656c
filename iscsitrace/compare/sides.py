"""The sides of `diff`: the figures of each session, which two sessions to compare, and why some cannot be."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.findings import NEEDED
from iscsitrace.fit.situation import Measured, measure
from iscsitrace.measure import line, workload
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.data_commands import is_operation
from iscsitrace.measure.distribution import counts, percentiles
from iscsitrace.measure.grouping import sessions_of
from iscsitrace.measure.parameters import negotiated
from iscsitrace.measure.session import Session
from iscsitrace.measure.waits import without_status
from iscsitrace.measure.workload import MIN_TASKS, MIXED
from iscsitrace.tables.table import Source
from iscsitrace.wording import amounts as wording

__all__ = ["NEEDED", "Side", "sides_of"]

SIZES_SHOWN: Final = 4
_IDENTITY: Final = frozenset(
    "InitiatorName InitiatorAlias TargetName TargetAlias TargetAddress TargetPortalGroupTag CHAP_N CHAP_I".split()
)
"""Keys that identify the parties: they are not compared."""
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Key:
    """A login key with its negotiation."""

    initiator_value: str | None
    target_value: str | None
    in_force: str | None
    """The negotiated value; both values of a key that each side declares separately."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Key:
        """Makes it from a row of ``parameters``."""
        return cls(row["initiator_value"], row["target_value"], negotiated(row))


@dataclass(frozen=True)
class Side:
    """The figures of a session that moved data."""

    session: int
    initiator_name: str | None
    target_name: str | None
    operation: str
    """``read``, ``write``, or ``block`` for both."""
    measured: Measured | None
    """None where the model does not apply."""
    task_count: int
    """Those that are complete in the capture."""
    incomplete_count: int
    """Commands of that operation; so are all figures below."""
    without_status_count: int
    """Commands of that operation without a status (waits.py): the slowest, and not among the latencies."""
    bytes: int
    pace_bytes_per_s: float | None
    """Bytes per busy time: pauses of the program between two commands count."""
    block_sizes: Mapping[int, int]
    """Commands by I/O size: the sizes that moved most."""
    block_bytes: int
    """Median I/O size, weighted by bytes."""
    queue_depth: int
    """Median of the commands in flight; at the initiator where the RTT is known."""
    connection_count: int
    parts_ns: Mapping[str, int]
    """Time breakdown of the busy time of these commands."""
    jobs_ns: int
    path_ns: int | None
    line_bytes_per_s: int | None
    window_bytes: int | None
    """Largest receive window of the data's receiver."""
    packet_count: int
    retransmitted_packet_count: int
    """In the direction of the data."""
    loss_count: int
    latency_ns: Mapping[str, int | None]
    """Percentiles."""
    keys: Mapping[str, Key]

    def share(self, part: str) -> float:
        """Share of the busy time."""
        return self.parts_ns[part] / self.jobs_ns if self.jobs_ns else 0.0

    def ns_per_megabyte(self, part: str) -> float:
        """Time per megabyte (10 ** 6 bytes)."""
        return self.parts_ns[part] * _MEGABYTE / self.bytes

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        situation = self.measured.situation if self.measured else None
        breakdown = {
            part: {"ns": self.parts_ns[part], "share": self.share(part), "ns_per_megabyte": self.ns_per_megabyte(part)}
            for part in PARTS
        }
        return {
            "session": self.session,
            "initiator_name": self.initiator_name,
            "target_name": self.target_name,
            "operation": self.operation,
            "task_count": self.task_count,
            "incomplete_count": self.incomplete_count,
            "without_status_count": self.without_status_count,
            "bytes": self.bytes,
            "pace_bytes_per_s": self.pace_bytes_per_s,
            "model_pace_bytes_per_s": situation.throughput() if situation else None,
            "block_sizes": [{"bytes": size, "task_count": count} for size, count in self.block_sizes.items()],
            "block_bytes": self.block_bytes,
            "queue_depth": self.queue_depth,
            "connection_count": self.connection_count,
            "time_breakdown": breakdown,
            # its old name
            "budget": breakdown,
            "jobs_ns": self.jobs_ns,
            "round_trip_ns": self.path_ns,
            "one_way_delay_ns": None if self.path_ns is None else self.path_ns / 2,
            "line_bytes_per_s": self.line_bytes_per_s,
            "window_bytes": self.window_bytes,
            "packet_count": self.packet_count,
            "retransmitted_packet_count": self.retransmitted_packet_count,
            "loss_count": self.loss_count,
            "latency_ns": dict(self.latency_ns),
        }


def sides_of(source: Source) -> dict[int, Side]:
    """Every session of a trace that moved data, by number; ``source`` is its method ``table``, read with NEEDED."""
    names = {row["session"]: row for row in source("sessions").rows(("session", "initiator_name", "target_name"))}
    return {
        number: _side(number, session, names[number])
        for number, session in sessions_of(source).items()
        if session.workload is not None and number in names
    }


def differing_keys(a: Side, b: Side) -> list[str]:
    """The keys with different negotiated values, in the order of A."""
    names = [name for name in dict.fromkeys([*a.keys, *b.keys]) if name not in _IDENTITY]
    in_force = {name: [side.keys[name].in_force if name in side.keys else None for side in (a, b)] for name in names}
    return [name for name, (one, other) in in_force.items() if one != other]


def _side(number: int, session: Session, names: Mapping[str, Any]) -> Side:
    measured, tasks, every = measure(session), session.transfers, session.cycles.select(session.is_transfer)
    # data may be missing altogether
    asked_for = session.cycles.select(is_operation(session.cycles, "read", "write"))
    jobs_ns, parts_ns = session.jobs_ns, {part: session.part_ns(part) for part in PARTS}
    if measured:
        # reads only, or writes only
        tasks = tasks.select(tasks.raw(f"is_{measured.situation.setting.operation}"))
        every = every.select(every.raw(f"is_{measured.situation.setting.operation}"))
        asked_for = asked_for.select(asked_for.raw(f"is_{measured.situation.setting.operation}"))
        jobs_ns, parts_ns = measured.busy_ns, dict(measured.parts_ns)
    asked = workload.of(tasks)
    if asked is None:
        raise AssertionError(f"{session.label} moved nothing")
    moved = int(tasks.raw("data_bytes").astype(np.int64).sum())
    if measured:
        pace: float | None = measured.pace_bytes_per_s
    else:
        pace = moved * 1e9 / jobs_ns if jobs_ns else None
    is_read = bool(2 * tasks.raw("data_bytes")[tasks.raw("is_read")].astype(np.int64).sum() > moved)
    direction = "to_initiator" if is_read else "to_target"
    senders = [row for row in session.senders if row["to_target"] != is_read]
    sizes = counts(tasks["bytes"])
    weightiest = sorted(sizes, key=lambda size: size * sizes[size], reverse=True)[:SIZES_SHOWN]
    return Side(
        session=number,
        initiator_name=names["initiator_name"],
        target_name=names["target_name"],
        operation=asked.word,
        measured=measured,
        task_count=len(tasks),
        incomplete_count=len(every) - len(tasks),
        without_status_count=int(without_status(asked_for).sum()),
        bytes=moved,
        pace_bytes_per_s=pace,
        block_sizes={size: sizes[size] for size in weightiest},
        block_bytes=asked.block_bytes,
        queue_depth=measured.situation.setting.queue_depth if measured else asked.queue_depth,
        connection_count=len(np.unique(tasks.raw("connection"))),
        parts_ns=parts_ns,
        jobs_ns=jobs_ns,
        path_ns=session.path_ns,
        line_bytes_per_s=found.bytes_per_s if (found := line.of(session)) else None,
        window_bytes=max((row["rwnd_max_bytes"] or 0 for row in senders), default=0) or None,
        packet_count=sum(row[f"packets_{direction}"] for row in session.connections),
        retransmitted_packet_count=sum(row[f"retransmitted_packets_{direction}"] for row in session.connections),
        loss_count=sum(row["recovery_count"] for row in senders),
        latency_ns=percentiles(tasks["latency_ns"]),
        keys=_keys(session),
    )


def _keys(session: Session) -> dict[str, Key]:
    """The keys of its first connection."""
    connection = min((row["connection"] for row in session.connections), default=None)
    rows = session.tables["parameters"].rows()
    return {row["key"]: Key.of(row) for row in rows if row["connection"] == connection}


BUSY: Final = 0.1
"""Share of the busiest session's bytes from which on another session may be picked."""
_LIKENESS: Final[tuple[Callable[[Side], Hashable], ...]] = (
    # an unknown target is like no other
    lambda side: None if side.target_name is None else (side.operation, side.target_name),
    lambda side: side.operation,
    lambda side: side.target_name,
    lambda _: True,
)
"""What two sessions can have in common, the closest likeness first. Of each kind the busiest is enough: with many
sessions, comparing each with each takes longer than reading them.
"""


def match(
    a: Mapping[int, Side], b: Mapping[int, Side], session_a: int | None = None, session_b: int | None = None
) -> tuple[Side, Side]:
    """The two sessions to compare: the requested ones, else the most similar pair of busy sessions.

    Similar are sessions of the same operation, then those with the same target; among several the busiest.
    InputInvalid where a capture has none, or not the requested one.
    """
    candidates = _candidates(a, session_a, "first"), _candidates(b, session_b, "second")
    alike = next(filter(None, _pairs(*candidates)))
    return max(alike, key=lambda pair: (pair[0].bytes * pair[1].bytes, -pair[0].session, -pair[1].session))


def why_not(a: Side, b: Side) -> str | None:
    """Why the model cannot explain the gap between two sessions, in words; None where it can."""
    named = (("first", a), ("second", b))
    for name, side in named:
        if side.operation == MIXED:
            return _mixed(name, side)
    if a.operation != b.operation:
        return f"one session {a.operation}s and the other {b.operation}s: they are not comparable"
    for name, side in named:
        if side.path_ns is None:
            return f"the {name} capture does not show the RTT of session {side.session}"
        if side.task_count < MIN_TASKS:
            complete = wording.count(side.task_count, f"complete {side.operation}")
            return f"session {side.session} of the {name} capture has only {complete}: too few to be sure"
        if side.measured is None:
            return _mixed(name, side)
    return None


def _mixed(name: str, side: Side) -> str:
    return f"session {side.session} of the {name} capture mixes reads and writes, and the model covers one operation"


def _candidates(sides: Mapping[int, Side], number: int | None, which: str) -> list[Side]:
    if not sides:
        raise InputInvalid(f"the {which} capture has no session that read or wrote data; diagnose says what it shows")
    if number is not None:
        if number not in sides:
            known = ", ".join(map(str, sides))
            raise InputInvalid(f"the {which} capture has no session {number} that read or wrote data; it has {known}")
        return [sides[number]]
    most = max(side.bytes for side in sides.values())
    return [side for side in sides.values() if side.bytes >= BUSY * most]


def _pairs(a: Sequence[Side], b: Sequence[Side]) -> Iterator[list[tuple[Side, Side]]]:
    """The busiest pair of each kind that both have, for the closest likeness first."""
    for kind_of in _LIKENESS:
        one, other = _busiest_by(kind_of, a), _busiest_by(kind_of, b)
        yield [(one[kind], other[kind]) for kind in one.keys() & other.keys()]


def _busiest_by(kind_of: Callable[[Side], Hashable], sides: Iterable[Side]) -> dict[Hashable, Side]:
    """The busiest of each kind, among equals the first; those of the kind None are left out."""
    # the last of a kind stays
    found = {kind_of(side): side for side in sorted(sides, key=lambda side: (side.bytes, -side.session))}
    found.pop(None, None)
    return found
