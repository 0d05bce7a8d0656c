"""The possible sides of a mirror: the requests of one host to one volume, over all its sessions.

Two paths to one volume (multipath) are one side.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from iscsitrace.measure import by_subject
from iscsitrace.relate import volumes
from iscsitrace.relate.volumes import Volume, Volumes
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import distinct, first_rows
from iscsitrace.tables.table import Array, Source, Table

BLOCK_BYTES: Final = 512
"""Size of a logical block where no request shows it."""


@dataclass(frozen=True)
class Requests:
    """Reads or writes of one side in order of time."""

    rows: Array
    """Their rows in the table ``cycles``."""
    firsts: Array
    """First byte on the logical unit."""
    lasts: Array
    """Byte after the last one."""
    begins: Array
    """First packet of the command."""
    ends: Array
    """Status, or the command where no status was captured."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Array:
        """Bytes of each."""
        return self.lasts - self.firsts

    def where(self, which: Array | slice) -> Requests:
        """The requests that a boolean mask, row numbers or a slice pick."""
        return Requests(self.rows[which], self.firsts[which], self.lasts[which], self.begins[which], self.ends[which])

    def moved(self, offset: int) -> Requests:
        """The same requests, moved up by ``offset`` bytes."""
        return Requests(self.rows, self.firsts + offset, self.lasts + offset, self.begins, self.ends)

    @property
    def depths(self) -> Array:
        """Requests in flight when each began, itself included."""
        begun = np.arange(1, len(self) + 1)
        return np.asarray(begun - np.searchsorted(np.sort(self.ends), self.begins, side="right"))


@dataclass(frozen=True)
class MirrorSide:
    """The requests of one host to one volume."""

    volume: Volume
    sessions: tuple[int, ...]
    """Those with writes."""
    block_bytes: int
    writes: Requests
    _reads: _BySide
    _place: int

    @property
    def reads(self) -> Requests:
        """Its reads: few sides are asked for them."""
        return self._reads.all[self._place]

    @property
    def host(self) -> str:
        """Name of the initiator, or its address where the login was not captured."""
        return self.volume.host

    @property
    def target(self) -> str:
        """Name of the target, or its address where the login was not captured."""
        return self.volume.members[0].target

    @property
    def lun(self) -> int:
        """The LUN on its first path."""
        return self.volume.members[0].lun


def of_trace(source: Source, found_volumes: Volumes | None = None, writes_min: int = 1) -> list[MirrorSide]:
    """Every side that has so many writes, in the order of their sessions, of hosts that have several.

    The volumes of the trace are found if they are not given.
    """
    cycles = source("cycles")
    written = _requests_of(cycles, "write")
    if len(written) < 2 * writes_min:
        return []
    found_volumes = found_volumes or volumes.find(source)
    if len(found_volumes.all) < 2:
        return []
    number = found_volumes.of_commands(cycles)
    of_volume = number[written]
    counts = np.bincount(of_volume[of_volume >= 0], minlength=len(found_volumes.all))
    numbers = np.flatnonzero(counts >= writes_min)
    hosts = Counter(found_volumes.all[each].host for each in numbers.tolist())
    wanted = [each for each in numbers.tolist() if hosts[found_volumes.all[each].host] > 1]
    if not wanted:
        return []
    place_of = np.full(len(found_volumes.all) + 1, -1, dtype=np.intp)
    place_of[wanted] = np.arange(len(wanted))
    place = place_of[number]
    asked = [rows[place[rows] >= 0] for rows in (written, _requests_of(cycles, "read"))]
    block_bytes = _block_bytes(cycles, np.concatenate(asked), place, len(wanted))
    writes, reads = (_BySide(cycles, rows, place[rows], block_bytes) for rows in asked)
    found = []
    for side, own in enumerate(writes.all):
        volume = found_volumes.all[wanted[side]]
        found.append(MirrorSide(volume, _sessions(volume, cycles, own), int(block_bytes[side]), own, reads, side))
    return found


def _sessions(volume: Volume, cycles: Table, writes: Requests) -> tuple[int, ...]:
    """Those with writes; most volumes have one session."""
    sessions = {member.session for member in volume.members}
    return (*sessions,) if len(sessions) == 1 else (*distinct(cycles.raw("session")[writes.rows])[0].tolist(),)


def _requests_of(cycles: Table, operation: str) -> Array:
    """Rows of the commands of that operation whose extent and session are known."""
    words = cycles.words("operation")
    if operation not in words or not len(cycles):
        return np.empty(0, dtype=np.intp)
    is_wanted = cycles.raw("operation") == words.index(operation)
    for name in ("session", "lun", "lba", "block_count"):
        is_wanted = is_wanted & known(cycles, name)
    return np.flatnonzero(is_wanted & (cycles.raw("block_count") > 0))


def _block_bytes(cycles: Table, rows: Array, place: Array, count: int) -> Array:
    """Size of a logical block of each side, by most of its requests: these rows, of which ``place`` has the sides."""
    found = np.full(count, BLOCK_BYTES, dtype=np.int64)
    rows = rows[known(cycles, "bytes")[rows] & (cycles.raw("bytes")[rows] > 0)]
    sizes = cycles.raw("bytes")[rows].astype(np.int64) // cycles.raw("block_count")[rows].astype(np.int64)
    if len(sizes) and (sizes == sizes[0]).all():
        # most captures have one size
        found[place[rows]] = sizes[0] or BLOCK_BYTES
        return found
    every, size = distinct(sizes)
    pairs, pair = distinct(place[rows] * len(every) + size)
    of_pair, size = np.divmod(pairs, max(len(every), 1))
    # the smallest of the commonest
    order = np.lexsort((size, -np.bincount(pair), of_pair))
    commonest = order[first_rows(of_pair[order])]
    found[of_pair[commonest]] = every[size[commonest]]
    found[found == 0] = BLOCK_BYTES
    return found


class _BySide:
    """The reads or writes of every side."""

    def __init__(self, cycles: Table, rows: Array, place: Array, block_bytes: Array) -> None:
        """``rows`` are those of ``cycles``, ``place`` the side of each, ``block_bytes`` those of each side."""
        self._cycles = cycles
        self._rows = rows
        self._place = place
        self._block_bytes = block_bytes

    @cached_property
    def all(self) -> list[Requests]:
        """By place of the side."""
        order = by_subject.in_order(self._place, self._cycles.raw("command_first_ns")[self._rows])
        cycles, rows, place = self._cycles, self._rows[order], self._place[order]
        begins = cycles.raw("command_first_ns")[rows]
        sizes = self._block_bytes[place]
        firsts = cycles.raw("lba")[rows].astype(np.int64) * sizes
        lasts = firsts + cycles.raw("block_count")[rows].astype(np.int64) * sizes
        ends = np.where(known(cycles, "status_ns")[rows], cycles.raw("status_ns")[rows], begins)
        every = Requests(rows, firsts, lasts, begins, np.maximum(ends, begins))
        edges = np.searchsorted(place, np.arange(len(self._block_bytes) + 1)).tolist()
        return [every.where(slice(first, last)) for first, last in pairwise(edges)]
