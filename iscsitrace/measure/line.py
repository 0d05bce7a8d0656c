"""The line that a session's data passed: its rate, where the packets show one, and the sessions that share it.

The estimate is that of the table ``senders`` (docs/method.md, section 4); nothing else estimates the rate of a line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from iscsitrace.measure.by_subject import first_of_each
from iscsitrace.measure.data_commands import is_transfer
from iscsitrace.measure.facts import Array, Facts, path_ns
from iscsitrace.measure.intervals import Span, furthest
from iscsitrace.tables.nulls import known, numbers_of
from iscsitrace.tables.numbers import first_rows
from iscsitrace.tables.table import Table

if TYPE_CHECKING:
    from iscsitrace.measure.session import Session
    from iscsitrace.tables.table import Source


COLUMNS: Final = (
    *("connection", "to_target", "line", "line_bytes_per_s", "line_low_bytes_per_s", "line_high_bytes_per_s"),
    *("line_wire_bytes_per_s", "line_stretch_count", "line_queue_ns"),
)
"""Columns of ``senders`` that a row has to have here."""

QUEUE_NS: Final = 10 * 1_000_000
"""Least time in a queue that is one: less is a busy host that takes packets late,"""
QUEUE_PART: Final = 0.5
"""and least part of the path's RTT: less does not change what a round trip costs."""
STOOD_PART: Final = 0.5
"""Least part of the I/O time in which the least RTT of 250 ms shows it: the queue of bursts empties between them, and a
path whose delay varies is now and then as short as at its least."""
_APART_NS: Final = 1_000_000_000
"""Work is apart from other work where the line carries nothing for so long,"""
_NEARLY_ALL: Final = 0.8
"""and the rest of no account where it has this part of the time."""
_PARTIAL_NS: Final = 500 * 1_000_000
"""The first and the last of these stretches may not be whole."""


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
    return of_row(session.facts.table("senders"), session.fact(rows))


def _ways(session: Session) -> list[int]:
    """The bytes of each direction."""
    ways = ("to_target", "to_initiator")
    return [sum(row[f"stream_bytes_{way}"] for row in session.connections) for way in ways]


def busy_ways(session: Session) -> tuple[str, ...]:
    """The sides to which it sent most bytes: the target, the initiator, or both where neither is much less."""
    sent = dict(zip(("target", "initiator"), _ways(session), strict=True))
    return tuple(side for side, count in sent.items() if _PART_LEAST * count >= max(sent.values()))


def sent_bytes(session: Session) -> int:
    """The bytes of the busier direction; of both, where one command at a time has the line either way."""
    is_in_turn = session.workload is not None and session.workload.queue_depth == 1
    return int(sum(_ways(session)) if is_in_turn else max(_ways(session)))


def used_share(session: Session, found: Line) -> float:
    """How much of what the line carries in the I/O time the session sent, both ways together: each may be the limit in
    turn.
    """
    return float(sum(_ways(session)) / (found.bytes_per_s * session.jobs_ns / 1e9))


def of_one(connections: Table, senders: Table, numbers: Iterable[int]) -> Line | None:
    """The same for these connections together."""
    place = np.where(np.isin(senders.raw("connection"), list(numbers)), 0, -1)
    return of_row(senders, int(rows_of_each(connections, senders, place, 1)[0]))


def of_row(senders: Table, row: int) -> Line | None:
    """The line of a row of ``senders``; None for -1."""
    return None if row < 0 else of_sender(next(senders.select(slice(row, row + 1)).rows(COLUMNS)))


def rates(facts: Facts) -> Array:
    """The rate in bytes/s of the line of each subject; 0 where it was not reached."""
    return np.append(facts.table("senders").raw("line_bytes_per_s"), 0)[facts.once(rows)]


def rows(facts: Facts) -> Array:
    """The row of ``senders`` of each subject's line; -1 where its rate was not reached."""
    connections, senders = facts.table("connections"), facts.table("senders")
    return rows_of_each(connections, senders, facts.places("senders"), len(facts))


def rows_of_each(connections: Table, senders: Table, place: Array, count: int) -> Array:
    """The same for that many subjects; ``place`` is the subject of each row of ``senders``, -1 for none."""
    numbers = connections.raw("connection").astype(np.int64)
    sent = np.zeros((numbers.max(initial=-1) + 1, 2), dtype=np.int64)
    for to_target, direction in enumerate(("to_initiator", "to_target")):
        sent[numbers, to_target] = connections.raw(f"stream_bytes_{direction}")
    own = np.flatnonzero(place >= 0)
    place, of = place[own], senders.raw("connection").astype(np.int64)[own]
    sizes = sent[of, senders.raw("to_target").astype(np.intp)[own]]
    most = np.zeros(count, dtype=np.int64)
    np.maximum.at(most, place, sizes)
    is_shown = (numbers_of(senders, "line_bytes_per_s")[own] > 0) & (_PART_LEAST * sizes >= most[place])
    found = first_of_each(np.where(is_shown, place, -1), count, -sizes)
    # -1 is the last
    return np.append(own, -1)[found]


class Times(dict[int, Span]):
    """When each session of a line read or wrote over it, by its number in order.

    All hosts of a target may be one line's sessions: nothing here compares each with each.
    """

    def are_together(self, one: int, other: int) -> bool:
        """Whether one session read or wrote while the other did."""
        if one not in self or other not in self:
            return False
        return self[one][0] < self[other][1] and self[other][0] < self[one][1]

    def count(self, session: int) -> int:
        """How many sessions read or wrote while this one did, this one included."""
        if session not in self:
            return 0
        firsts_ns, lasts_ns = self._sorted
        first_ns, last_ns = self[session]
        return max(0, bisect_left(firsts_ns, last_ns) - bisect_right(lasts_ns, first_ns))

    def first(self, session: int, most: int) -> list[int]:
        """The first of these sessions."""
        return list(islice((each for each in self if self.are_together(session, each)), min(most, self.count(session))))

    def together(self, session: int) -> Span:
        """From when until when another one read or wrote while this one did; only where there is one."""
        firsts_ns, lasts_ns = self._sorted
        first_ns, last_ns = self[session]
        # equal beginnings are its own, and those of others; so are equal ends
        later, earlier = bisect_right(firsts_ns, first_ns), bisect_left(lasts_ns, last_ns)
        others_before = later - 1 - bisect_right(lasts_ns, first_ns)
        others_after = len(lasts_ns) - earlier - 1 - (len(firsts_ns) - bisect_left(firsts_ns, last_ns))
        begin_ns = first_ns if others_before > 0 else firsts_ns[later]
        return begin_ns, last_ns if others_after > 0 else lasts_ns[earlier - 1]

    @cached_property
    def _sorted(self) -> tuple[list[int], list[int]]:
        return sorted(first_ns for first_ns, _ in self.values()), sorted(last_ns for _, last_ns in self.values())


def times_by_line(source: Source) -> dict[int, Times]:
    """The sessions that read or wrote over each line, by its number: each while it had nearly all of its time, from the
    first command that moved data to the last status.
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
    return {
        line: Times({each: times[each] for each in sorted(sessions) if each in times})
        for line, sessions in found.items()
    }


def _times_of_transfers(cycles: Table) -> dict[int, Span]:
    rows = np.flatnonzero(cycles.each(is_transfer) & known(cycles, "status_ns") & known(cycles, "session"))
    rows = rows[np.lexsort([cycles.raw(name)[rows] for name in ("command_first_ns", "session")])]
    session, first_ns, last_ns = (cycles.raw(name)[rows] for name in ("session", "command_first_ns", "status_ns"))
    starts = first_rows(session)
    if not len(starts):
        return {}
    return dict(zip(session[starts].tolist(), main_spans(first_ns, last_ns, starts), strict=True))


def main_spans(starts: Array, ends: Array, firsts: Array) -> list[Span]:
    """When each group of intervals had nearly all of its time: a small part a second or more before or after the rest
    does not count. The groups begin at the rows ``firsts``; each is in order of its starts.
    """
    is_first = np.append(True, starts[1:] - furthest(ends, firsts)[:-1] >= _APART_NS)
    is_first[firsts] = True
    parts = np.flatnonzero(is_first)
    group = np.searchsorted(firsts, parts, side="right") - 1
    part_ns, all_ns = (np.add.reduceat(ends - starts, each) for each in (parts, firsts))
    is_main = (part_ns > 0) & (part_ns >= _NEARLY_ALL * all_ns[group])
    from_ns, until_ns = starts[firsts], np.maximum.reduceat(ends, firsts)
    from_ns[group[is_main]] = starts[parts[is_main]]
    until_ns[group[is_main]] = np.maximum.reduceat(ends, parts)[is_main]
    return list(zip(from_ns.tolist(), until_ns.tolist(), strict=True))


def loaded(facts: Facts) -> Array:
    """The sender of each subject before whose data a queue stood longest, else with the most samples of the RTT under
    load, as its row of ``senders``; -1 without samples.
    """
    senders, places = facts.table("senders"), facts.places("senders")
    has_any = (places >= 0) & known(senders, "rtt_load_median_ns")
    # nanoseconds, and far fewer samples
    rank = senders.raw("standing_queue_ns").astype(np.int64) + senders.raw("rtt_load_count").astype(np.int64)
    return first_of_each(np.where(has_any, places, -1), len(facts), -rank)


def standing_ns(facts: Facts) -> Array:
    """How long packets of each subject typically wait in a queue that stands; 0 where none does."""
    rows, least_ns = facts.once(loaded), facts.once(path_ns)
    senders = facts.table("senders")
    queue_ns = np.append(senders.raw("rtt_load_median_ns"), 0)[rows] - least_ns
    stood_ns = np.append(senders.raw("standing_queue_ns"), 0)[rows]
    stands = (rows >= 0) & (least_ns >= 0) & (queue_ns >= np.maximum(QUEUE_NS, QUEUE_PART * least_ns))
    stands &= (stood_ns > 0) & (stood_ns >= STOOD_PART * (facts.jobs_ns - _PARTIAL_NS))
    return np.where(stands, queue_ns, 0)
