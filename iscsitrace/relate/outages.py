"""Outages of stories and of volumes, and when the sessions of a trace were in service: logged in, and not out.

The outages of sessions are those of the time breakdown (docs/method.md, section 4), each until the first progress after
it, over all sessions of a story. A volume is out while its commands wait and none of its paths makes progress. This
shows a logical unit that hangs while others of its session work, and a path that works while another is out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import waits
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.data_commands import is_operation, is_storage_command
from iscsitrace.measure.grouping import session_of_stretches
from iscsitrace.measure.intervals import Span, difference, intersection, merged
from iscsitrace.measure.violations import Violated
from iscsitrace.relate.volumes import Volume, Volumes
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Array, Source, Table

OUTAGE_MIN_NS: Final = 1_000_000_000
"""The shortest outage (docs/method.md, section 4)."""


@dataclass(frozen=True)
class Outage:
    """A time without progress, from the last to the next."""

    from_ns: int
    to_ns: int
    sessions: tuple[int, ...]
    is_over: bool
    """Whether progress followed in the capture."""

    @property
    def length_ns(self) -> int:
        """How long it lasted, as far as captured."""
        return self.to_ns - self.from_ns


_PROGRESS: Final = ("r2t_first_ns", "data_first_ns", "status_ns")


def progress(data_commands: Table) -> tuple[NDArray[Any], NDArray[Any]]:
    """The instants of R2Ts, data and statuses of these commands, and the row of each, in no order."""
    rows = [np.flatnonzero(known(data_commands, name)) for name in _PROGRESS]
    instants = [data_commands.raw(name)[own] for name, own in zip(_PROGRESS, rows, strict=True)]
    return np.concatenate(instants), np.concatenate(rows)


def until_progress(
    stretches: Iterable[tuple[int, int, int]], progress_ns: NDArray[Any], progress_sessions: NDArray[Any]
) -> tuple[Outage, ...]:
    """The outages of one story in order, each until progress: what overlaps is one.

    ``stretches`` are start, end and session of each ``outage`` of the time breakdown; one outage may follow upon
    another there, with nothing but an instant of progress between them. ``progress_ns`` are the instants of progress of
    the story, in order, ``progress_sessions`` the session of each.
    """
    found = []
    for first_ns, to_ns, session in stretches:
        from_ns = first_ns
        # the first command after the loss of a session is issued, and then answered; the next session may work while a
        # command of the lost one still waits
        later = int(np.searchsorted(progress_ns, from_ns, "right"))
        while later < len(progress_ns) and progress_ns[later] < to_ns and progress_sessions[later] == session:
            found.append(Outage(from_ns, int(progress_ns[later]), (session,), is_over=True))
            from_ns = found[-1].to_ns
            later = int(np.searchsorted(progress_ns, from_ns, "right"))
        is_over = later < len(progress_ns)
        found.append(Outage(from_ns, int(progress_ns[later]) if is_over else to_ns, (session,), is_over))
    long = (each for each in found if each.length_ns >= OUTAGE_MIN_NS)
    return tuple(_joined(sorted(long, key=lambda each: each.from_ns)))


def _joined(outages: Iterable[Outage]) -> Iterator[Outage]:
    current: Outage | None = None
    for each in outages:
        # progress parts two that touch
        if current is not None and (
            each.from_ns < current.to_ns or (each.from_ns == current.to_ns and not current.is_over)
        ):
            numbers = (*current.sessions, *(number for number in each.sessions if number not in current.sessions))
            end = max(current, each, key=lambda outage: outage.to_ns)
            current = Outage(current.from_ns, end.to_ns, numbers, end.is_over)
            continue
        if current is not None:
            yield current
        current = each
    if current is not None:
        yield current


def frozen(broken: Violated, cycles: Table, last_ns: int) -> Outage | None:
    """The time of an outage or more in which a session sent no command, with numbers in force that closed its window
    (rule S8); None of other rules, or if there was none. ``last_ns`` is the last packet of the connection.

    Only where such numbers came within that time, or right before: another pause is the application's.
    """
    if broken.rule.name != "S8" or broken.time_ns is None:
        return None
    own = cycles.select(cycles.raw("connection") == broken.connection)
    sent = np.sort(own.raw("command_first_ns"))
    place = int(np.searchsorted(sent, broken.time_ns, side="right"))
    if place == 0:
        return None
    is_over = place < len(sent)
    until_ns = int(sent[place]) if is_over else last_ns
    ends = own.raw("end_ns")[known(own, "end_ns")]
    # the commands in flight end meanwhile
    from_ns = max(int(sent[place - 1]), int(ends[ends < until_ns].max(initial=0)))
    sessions = () if broken.session is None else (broken.session,)
    found = Outage(from_ns, until_ns, sessions, is_over)
    return found if found.length_ns >= OUTAGE_MIN_NS else None


Intervals = tuple[Array, Array]
"""Starts and ends, disjoint and in order."""

_CUT_OFF = [CATEGORIES["ended_by"].index(name) for name in ("connection_end", "session_end", "capture_end")]


class Availability:
    """The lives and the outages of all sessions; ``source`` is the method ``table`` of a trace with ``budget``."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @cached_property
    def lives(self) -> dict[int, Span]:
        """First and last packet of each session; the end of the capture for one that did not end in it."""
        rows = list(self.source("sessions").rows(("session", "time_first_ns", "time_last_ns", "end", "replaces")))
        last_ns = int(self.source("connections").raw("time_last_ns").max(initial=0))
        replaced = {row["replaces"] for row in rows}
        return {
            row["session"]: (
                row["time_first_ns"],
                max(last_ns, row["time_last_ns"])
                if row["end"] == "open" and row["session"] not in replaced
                else row["time_last_ns"],
            )
            for row in rows
        }

    @cached_property
    def outages(self) -> dict[int, Intervals]:
        """The outages of each session that has any."""
        budget = self.source("budget")
        is_out = budget.raw("part") == PARTS.index("outage")
        if not is_out.any():
            return {}
        sessions = session_of_stretches(budget)[is_out]
        firsts_ns, lasts_ns = (budget.raw(f"time_{end}_ns")[is_out] for end in ("first", "last"))
        own = {number: rows for number, rows in grouped(sessions).items() if number >= 0}
        return {number: merged(firsts_ns[rows], lasts_ns[rows]) for number, rows in own.items()}

    @cached_property
    def ends_ns(self) -> Array:
        """When each command was over for the initiator, as far as the capture shows: as `waits` has it; one that went
        with its connection or session, with the end of the session and of the outage after that.
        """
        cycles = self.source("cycles")
        waited = waits.of_trace(self.source)
        ends = waited.ends_ns(cycles)
        is_cut = waited.is_open & np.isin(cycles.raw("ended_by"), _CUT_OFF) & known(cycles, "session")
        rows = np.flatnonzero(is_cut)
        sessions = cycles.raw("session")[rows].tolist()
        until = {number: self._until(number) for number in set(sessions)}
        ends[rows] = np.maximum(ends[rows], [until[number] for number in sessions])
        return ends

    def _until(self, session: int) -> int:
        last_ns = self.lives[session][1]
        starts, ends = self.outages.get(session, joined(()))
        around = ends[(starts <= last_ns) & (ends > last_ns)]
        return int(around[0]) if len(around) else last_ns

    def available(self, sessions: Sequence[int]) -> Intervals:
        """When one of these sessions was in service."""
        lives = [self.lives[number] for number in sessions if number in self.lives]
        starts, ends = (np.array([life[place] for life in lives], dtype=np.int64) for place in (0, 1))
        outages = [self.outages[number] for number in sessions if number in self.outages]
        return difference(*merged(starts, ends), *joined(outages))


def joined(several: Sequence[Intervals]) -> Intervals:
    """The time of all of these intervals."""
    if not several:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return merged(np.concatenate([starts for starts, _ in several]), np.concatenate([ends for _, ends in several]))


NEEDED_OF_VOLUMES: Final = ("budget",)
"""Tables filled on request that this reads."""

USUAL_TIMES: Final = 4
"""A logical unit that takes no longer than this multiple of the time in which a quarter of its reads and writes
complete is slow, and not out."""


def outages_of_volumes(source: Source, volumes: Volumes) -> dict[int, tuple[Span, ...]]:
    """The outages of each volume that has any, by its number."""
    return {number: spans for number, spans in _Trace(source, volumes).found() if spans}


class _Trace:
    """What the outages of all volumes are found from."""

    def __init__(self, source: Source, volumes: Volumes) -> None:
        self.source = source
        self.volumes = volumes
        self.service = Availability(source)

    def found(self) -> Iterator[tuple[int, tuple[Span, ...]]]:
        long = self._is_work & (self.service.ends_ns - self.cycles.raw("command_first_ns") >= OUTAGE_MIN_NS)
        hung = set(np.unique(self._numbers[long]).tolist())
        if not hung and not self.service.outages:
            return
        rows = np.flatnonzero(self._is_work)
        # most commands go where the one before went
        sessions, numbers = self.cycles.raw("session")[rows], self._numbers[rows]
        is_new = np.ones(len(rows), dtype=bool)
        is_new[1:] = (sessions[1:] != sessions[:-1]) | (numbers[1:] != numbers[:-1])
        used: dict[int, set[int]] = {}
        for session, number in zip(sessions[is_new].tolist(), numbers[is_new].tolist(), strict=True):
            used.setdefault(session, set()).add(number)
        every = {number for own in used.values() for number in own}
        wanted = [
            volume
            for volume in self.volumes.all
            if volume.number in every and (volume.number in hung or self.service.outages.keys() & set(volume.sessions))
        ]
        rows_of = _rows_of(rows, numbers, [volume.number for volume in wanted])
        for volume in wanted:
            alone = {session for session in volume.sessions if used.get(session, set()) <= {volume.number}}
            yield volume.number, tuple(self._of_volume(volume, rows_of[volume.number], alone))

    def _of_volume(self, volume: Volume, rows: Array, alone: set[int]) -> Iterator[Span]:
        own = self.cycles.select(rows)
        begun_ns, ended_ns, session = own.raw("command_first_ns"), self.service.ends_ns[rows], own.raw("session")
        is_long = ended_ns - begun_ns >= OUTAGE_MIN_NS
        waits = merged(begun_ns[is_long], ended_ns[is_long])
        outages = joined([self.service.outages[each] for each in volume.sessions if each in self.service.outages])
        # a session of several volumes has an outage only when all of them wait
        shared = is_long & ~np.isin(session, list(alone))
        candidates = joined(
            [
                *(self.service.outages[each] for each in alone if each in self.service.outages),
                merged(begun_ns[shared], ended_ns[shared]),
                *(rebuilt for each in volume.sessions if (rebuilt := self._rebuilt(each)) is not None),
            ]
        )
        if len(volume.paths) > 1:
            # an idle volume is out only if no path is left
            idle = difference(*candidates, *waits)
            for path in volume.paths:
                idle = difference(*idle, *self.service.available([member.session for member in path]))
            candidates = joined([intersection(*candidates, *waits), idle])
        elif not shared.any():
            yield from _spans(candidates)
            return
        transfers = difference(*_transfers(own.select(is_long)), *outages)
        pieces = difference(*candidates, *transfers)
        instants = _instants(own, ended_ns, pieces)
        starts, ends = difference(*pieces, instants, instants)
        # a slow UNMAP or flush that succeeds is slow, and not out
        is_slow = ~is_operation(own, "read", "write") & known(own, "operation") & (own.raw("status") == 0)
        keep = ~np.isin(ends, own.raw("status_ns")[is_slow]) & (ends - starts >= self._least_ns(own))
        yield from _spans((starts[keep], ends[keep]))

    def _least_ns(self, own: Table) -> int:
        has_status = is_operation(own, "read", "write") & known(own, "status_ns")
        latency = (own.raw("status_ns") - own.raw("command_first_ns"))[has_status]
        if not len(latency):
            return OUTAGE_MIN_NS
        usual_ns = int(np.percentile(latency, 25, method="inverted_cdf"))
        return max(OUTAGE_MIN_NS, USUAL_TIMES * usual_ns)

    def _rebuilt(self, session: int) -> Intervals | None:
        """The outages of a session after its end: until another one works in its place."""
        if session not in self.service.outages:
            return None
        starts, ends = self.service.outages[session]
        return merged(np.maximum(starts, self.service.lives[session][1]), ends)

    @property
    def cycles(self) -> Table:
        return self.source("cycles")

    @cached_property
    def _numbers(self) -> Array:
        return self.volumes.of_commands(self.cycles)

    @cached_property
    def _is_work(self) -> Array:
        """Reads, writes, erasures and flushes of a known volume."""
        return np.asarray(self.cycles.each(is_storage_command) & (self._numbers >= 0))


def _rows_of(rows: Array, numbers: Array, wanted: Sequence[int]) -> dict[int, Array]:
    """The rows of each of these volumes."""
    is_wanted = np.isin(numbers, wanted)
    rows, numbers = rows[is_wanted], numbers[is_wanted]
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], [*wanted, np.iinfo(np.int64).max])
    return {number: rows[order[bounds[place] : bounds[place + 1]]] for place, number in enumerate(wanted)}


def _transfers(own: Table) -> Intervals:
    """From the first byte of the data of each command to the last."""
    has_data = known(own, "data_first_ns") & known(own, "data_last_ns")
    return merged(own.raw("data_first_ns")[has_data], own.raw("data_last_ns")[has_data])


def _instants(own: Table, ended_ns: Array, within: Intervals) -> Array:
    """The instants of R2Ts, data and statuses inside these intervals, each once, in order."""
    has_status = known(own, "status_ns")
    columns = [own.raw(name)[known(own, name)] for name in ("r2t_first_ns", "data_first_ns", "data_last_ns")]
    every = np.concatenate([*columns, ended_ns[has_status]])
    starts, ends = within
    if not len(starts):
        return every[:0]
    place = np.searchsorted(starts, every, side="left") - 1
    return np.unique(every[(place >= 0) & (every < ends[place.clip(0)])])


def _spans(found: Intervals) -> Iterator[Span]:
    starts, ends = found
    is_long = ends - starts >= OUTAGE_MIN_NS
    yield from zip(starts[is_long].tolist(), ends[is_long].tolist(), strict=True)
