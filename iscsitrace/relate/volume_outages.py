"""Outages of volumes: times in which commands of a volume wait and none of its paths makes progress.

The outages of sessions are those of the time breakdown (docs/method.md, section 4). This adds what they cannot show: a
logical unit that hangs while others of its session work, and a path that works while another is out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.data_commands import is_operation, is_storage_command
from iscsitrace.measure.intervals import Span, difference, intersection, merged
from iscsitrace.relate.outages import OUTAGE_MIN_NS
from iscsitrace.relate.service import Availability, Intervals, joined
from iscsitrace.relate.volumes import Volume, Volumes
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]

NEEDED: Final = ("budget",)
"""Tables filled on request that this reads."""

USUAL_TIMES: Final = 4
"""A logical unit that takes no longer than this multiple of the time in which a quarter of its reads and writes
complete is slow, and not out."""


def find(source: Source, volumes: Volumes) -> dict[int, tuple[Span, ...]]:
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
