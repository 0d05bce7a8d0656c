"""The possible sides of a mirror: the requests of one host to one volume, over all its sessions.

Two paths to one volume (multipath) are one side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups import volumes
from iscsitrace.analysis.groups.volumes import Volume, Volumes
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.tables.numbers import distinct, first_rows, rows_of_each
from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]

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
    reads: Requests

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
    number = found_volumes.of_commands(cycles)
    of_volume = number[written]
    counts = np.bincount(of_volume[of_volume >= 0], minlength=len(found_volumes.all))
    numbers = np.flatnonzero(counts >= writes_min)
    hosts = Counter(found_volumes.all[each].host for each in numbers.tolist())
    wanted = [each for each in numbers.tolist() if hosts[found_volumes.all[each].host] > 1]
    if not wanted:
        return []
    groups = [_split(rows, number, wanted) for rows in (written, _requests_of(cycles, "read"))]
    block_bytes = _block_bytes(cycles, [np.concatenate(own) for own in zip(*groups, strict=True)])
    found = []
    requests = (_requests(cycles, rows, block_bytes) for rows in groups)
    for each, own_bytes, writes, reads in zip(wanted, block_bytes.tolist(), *requests, strict=True):
        volume = found_volumes.all[each]
        found.append(MirrorSide(volume, _sessions(volume, cycles, writes), own_bytes, writes, reads))
    return found


def _sessions(volume: Volume, cycles: Table, writes: Requests) -> tuple[int, ...]:
    """Those with writes; most volumes have one session."""
    sessions = {member.session for member in volume.members}
    return (*sessions,) if len(sessions) == 1 else (*distinct(cycles.raw("session")[writes.rows])[0].tolist(),)


def _split(rows: Array, number: Array, numbers: Sequence[int]) -> list[Array]:
    """Of these rows, those of each of these numbers, in order."""
    return [rows[own] for own in rows_of_each(number[rows], numbers)]


def _requests_of(cycles: Table, operation: str) -> Array:
    """Rows of the commands of that operation whose extent and session are known."""
    words = cycles.words("operation")
    if operation not in words or not len(cycles):
        return np.empty(0, dtype=np.intp)
    is_wanted = cycles.raw("operation") == words.index(operation)
    for name in ("session", "lun", "lba", "block_count"):
        is_wanted = is_wanted & known(cycles, name)
    return np.flatnonzero(is_wanted & (cycles.raw("block_count") > 0))


def _joined(groups: Sequence[Array]) -> tuple[Array, Array]:
    """The rows of all groups, and the group of each."""
    return np.concatenate(groups), np.repeat(np.arange(len(groups)), [len(rows) for rows in groups])


def _block_bytes(cycles: Table, groups: Sequence[Array]) -> Array:
    """Size of a logical block of each group of requests, by most of them."""
    rows, group = _joined(groups)
    is_known = known(cycles, "bytes")[rows] & (cycles.raw("bytes")[rows] > 0)
    rows, group = rows[is_known], group[is_known]
    sizes = cycles.raw("bytes")[rows] // cycles.raw("block_count")[rows].astype(np.int64)
    every, place = np.unique(sizes.astype(np.int64), return_inverse=True)
    pairs, count = np.unique(group * len(every) + place, return_counts=True)
    of_pair, size = np.divmod(pairs, max(len(every), 1))
    # the smallest of the commonest
    order = np.lexsort((size, -count, of_pair))
    commonest = order[first_rows(of_pair[order])]
    found = np.full(len(groups), BLOCK_BYTES, dtype=np.int64)
    found[of_pair[commonest]] = every[size[commonest]]
    found[found == 0] = BLOCK_BYTES
    return found


def _requests(cycles: Table, groups: Sequence[Array], block_bytes: Array) -> list[Requests]:
    rows, group = _joined(groups)
    order = np.lexsort((cycles.raw("command_first_ns")[rows], group))
    rows = rows[order]
    begins = cycles.raw("command_first_ns")[rows]
    sizes = block_bytes[group]
    firsts = cycles.raw("lba")[rows].astype(np.int64) * sizes
    lasts = firsts + cycles.raw("block_count")[rows].astype(np.int64) * sizes
    ends = np.where(known(cycles, "status_ns")[rows], cycles.raw("status_ns")[rows], begins)
    every = Requests(rows, firsts, lasts, begins, np.maximum(ends, begins))
    edges = np.cumsum([0, *map(len, groups)]).tolist()
    return [every.where(slice(first, last)) for first, last in pairwise(edges)]
