"""The line that a session's data passed: its rate, where the packets show one, and the sessions that share it.

The estimate is that of the table ``senders`` (docs/method.md, section 4); nothing else estimates the rate of a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from iscsitrace.analysis.measures.data_commands import is_transfer
from iscsitrace.analysis.measures.intervals import Span
from iscsitrace.analysis.measures.nulls import known, numbers_of
from iscsitrace.tables.numbers import first_rows, order_of
from iscsitrace.tables.table import Table

if TYPE_CHECKING:
    from iscsitrace.analysis.session.facts import Array, Facts
    from iscsitrace.analysis.session.session import Session
    from iscsitrace.tables.table import Source


COLUMNS: Final = (
    *("connection", "to_target", "line", "line_bytes_per_s", "line_low_bytes_per_s", "line_high_bytes_per_s"),
    *("line_wire_bytes_per_s", "line_stretch_count", "line_queue_ns"),
)
"""Columns of ``senders`` that a row has to have here."""


@dataclass(frozen=True)
class Line:
    """A line with its estimated rate: bytes of TCP payload per second."""

    number: int | None
    """Connections whose lines have the same number share one."""
    bytes_per_s: int
    low_bytes_per_s: int | None
    high_bytes_per_s: int | None
    """Lower and upper quartile of the stretches."""
    wire_bytes_per_s: int | None
    """The same with the headers of each packet."""
    stretch_count: int
    """Stretches in which the line had a queue."""
    queue_ns: int | None
    """Median time in the queue."""


def of_sender(row: Mapping[str, Any] | None) -> Line | None:
    """The line of a row of ``senders``; None where its rate was not reached."""
    if not row or not row.get("line_bytes_per_s"):
        return None
    return Line(
        number=row.get("line"),
        bytes_per_s=row["line_bytes_per_s"],
        low_bytes_per_s=row.get("line_low_bytes_per_s"),
        high_bytes_per_s=row.get("line_high_bytes_per_s"),
        wire_bytes_per_s=row.get("line_wire_bytes_per_s"),
        stretch_count=row.get("line_stretch_count") or 0,
        queue_ns=row.get("line_queue_ns"),
    )


_PART_LEAST: Final = 2
"""A direction with less than this part of the bytes of the other is not what the session waits for."""


def of(session: Session) -> Line | None:
    """The line of the direction that carried most bytes; where its rate was not reached, that of the other direction,
    if that carried at least half as many; else None. With reads and writes alike a tap may show one of both lines.
    """
    return of_busiest(session.connections, session.senders)


def of_busiest(connections: Iterable[Mapping[str, Any]], senders: Iterable[Mapping[str, Any]]) -> Line | None:
    """The same for rows of ``connections`` and all rows of ``senders``."""
    sent = {
        (row["connection"], direction == "to_target"): int(row[f"stream_bytes_{direction}"])
        for row in connections
        for direction in ("to_target", "to_initiator")
    }
    rows = [row for row in senders if (row["connection"], row["to_target"]) in sent]
    sizes = [sent[row["connection"], row["to_target"]] for row in rows]
    most = max(sizes, default=0)
    large = [(size, row) for size, row in zip(sizes, rows, strict=True) if _PART_LEAST * size >= most]
    shown = [row for _, row in sorted(large, key=lambda each: -each[0]) if row.get("line_bytes_per_s")]
    return of_sender(shown[0] if shown else None)


def rates(facts: Facts) -> Array:
    """The rate in bytes/s of the line of each subject, as `of` has it; 0 where it was not reached."""
    senders, connections = facts.table("senders"), facts.table("connections")
    numbers = connections.raw("connection").astype(np.int64)
    sent = np.zeros((numbers.max(initial=-1) + 1, 2), dtype=np.int64)
    for to_target, direction in enumerate(("to_initiator", "to_target")):
        sent[numbers, to_target] = connections.raw(f"stream_bytes_{direction}")
    places, of = facts.places("senders"), senders.raw("connection").astype(np.int64)
    rows = np.flatnonzero(places >= 0)
    places, sizes = places[rows], sent[of, senders.raw("to_target").astype(np.intp)][rows]
    most = np.zeros(len(facts), dtype=np.int64)
    np.maximum.at(most, places, sizes)
    bytes_per_s = np.maximum(numbers_of(senders, "line_bytes_per_s"), 0)[rows]
    shown = np.where(_PART_LEAST * sizes >= most[places], bytes_per_s, 0)
    order = np.lexsort((-sizes, shown == 0, places))
    first = order[first_rows(places[order])]
    found = np.zeros(len(facts), dtype=np.int64)
    found[places[first]] = shown[first]
    return found


def times_by_line(source: Source) -> dict[int, dict[int, Span]]:
    """The sessions that read or wrote over each line, by its number: each from the first command that moved data to the
    last status.
    """
    senders, connections = source("senders"), source("connections")
    has_line = known(senders, "line")
    if not has_line.any():
        return {}
    numbers = connections.raw("connection").tolist()
    session_of = dict(zip(numbers, numbers_of(connections, "session").tolist(), strict=True))
    found: dict[int, set[int]] = {}
    for connection, line in zip(
        *(senders.raw(name)[has_line].tolist() for name in ("connection", "line")), strict=True
    ):
        if (session := session_of.get(connection, -1)) >= 0:
            found.setdefault(line, set()).add(session)
    times = _times_of_transfers(source("cycles")) if found else {}
    return {line: {each: times[each] for each in sorted(sessions) if each in times} for line, sessions in found.items()}


def sharing(times: Mapping[int, Span], session: int) -> tuple[int, ...]:
    """The sessions of a line that read or wrote while this one did, this one included."""
    own = times.get(session)
    if own is None:
        return ()
    return tuple(each for each, (first_ns, last_ns) in times.items() if own[0] < last_ns and first_ns < own[1])


def _times_of_transfers(cycles: Table) -> dict[int, Span]:
    rows = np.flatnonzero(cycles.each(is_transfer) & known(cycles, "status_ns") & known(cycles, "session"))
    rows = rows[order_of(cycles.raw("session")[rows])]
    session, first_ns, last_ns = (cycles.raw(name)[rows] for name in ("session", "command_first_ns", "status_ns"))
    starts = first_rows(session)
    if not len(starts):
        return {}
    firsts, lasts = np.minimum.reduceat(first_ns, starts), np.maximum.reduceat(last_ns, starts)
    return dict(zip(session[starts].tolist(), zip(firsts.tolist(), lasts.tolist(), strict=True), strict=True))
