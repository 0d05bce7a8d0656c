"""Which legs are mirrors of each other: the same extents are written to them at the same time, again and again.

Where the beginnings of the data were captured they have the last word: a stripe whose rows are written whole has the
same addresses at the same times, and other data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups.mirrors import legs
from iscsitrace.analysis.groups.mirrors.legs import Leg, Requests, Source
from iscsitrace.analysis.groups.mirrors.pairing import Pairing, pair
from iscsitrace.analysis.measures.intervals import merged
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table

Array = NDArray[Any]

SAME: Final = 0.9
"""Share of the writes, and of their bytes, that have to be on both legs while they are one: the capture may have
lost one in ten commands, or have begun amid them; of two programs that know nothing of each other far fewer coincide.
"""
WRITES_MIN: Final = 4
"""Writes on both legs that it takes: fewer coincide by chance, or are what a host writes to every new disk."""
ODD_MIN: Final = 8
"""Writes on both that no page divides which rule a stripe out: superblocks, which are such, are on all members of any
array, and fewer."""
AGREES: Final = 0.9
"""Share of the compared beginnings that have to be alike: rarely a host changes its memory between the two copies."""
START_BYTES: Final = 64
"""Bytes of a beginning that it takes to prove that data are alike, for many begin with a name or a number of the block;
any part proves that they differ."""
PAGE_BYTES: Final = 4096
"""No stripe of Linux (md, device mapper) has chunks smaller than a page."""
COPIED_NS: Final = 1_000_000_000
"""How long after it was read from one leg an extent may be written to the other to be a copy (a resync), not data."""
SAMPLE: Final = 512
"""Writes that are looked at to find out how far apart the legs' addresses are."""
NEIGHBORS: Final = 4
"""Writes of the other leg, before and after each of these, that are tried for that."""


@dataclass(frozen=True)
class Mirror:
    """Legs that carry the same writes."""

    legs: tuple[Leg, ...]
    offsets: tuple[int, ...]
    """Bytes that each leg's addresses lie above those of the first."""
    pairings: tuple[Pairing, ...]
    """Of the first leg's writes with those of each other."""
    is_sure: bool
    """Whether it is known to be no stripe."""
    chunk_bytes: int
    """The largest chunk that a stripe with these extents could have."""

    @property
    def sessions(self) -> tuple[int, ...]:
        """Of all legs, in their order."""
        return tuple(dict.fromkeys(session for leg in self.legs for session in leg.sessions))


def find(source: Source) -> list[Mirror]:
    """Every mirror of a trace; ``source`` is its method ``table``."""
    left = legs.of_trace(source)
    if len(left) < 2:
        return []
    starts = _starts(source)
    found = []
    while left:
        first, *others = left
        copies = [(other, match) for other in others if (match := _match(source, first, other, starts)) is not None]
        if copies:
            found.append(
                Mirror(
                    (first, *(leg for leg, _ in copies)),
                    (0, *(match.offset for _, match in copies)),
                    tuple(match.pairing for _, match in copies),
                    all(match.is_sure for _, match in copies),
                    min(match.chunk_bytes for _, match in copies),
                )
            )
        taken = [leg for leg, _ in copies]
        left = [leg for leg in others if not any(leg is each for each in taken)]
    return found


@dataclass(frozen=True)
class _Match:
    """How two legs go together."""

    offset: int
    pairing: Pairing
    is_sure: bool
    chunk_bytes: int


def _match(source: Source, one: Leg, other: Leg, starts: tuple[Array, Array] | None) -> _Match | None:
    if one.host != other.host:
        return None
    for offset in _offsets(one.writes, other.writes):
        there = other.writes.moved(-offset)
        pairing = pair(one.writes, there)
        if not _is_same(one, other, there, pairing, offset):
            continue
        verdict = _compare(one.writes, there, pairing, starts)
        if verdict is False:
            return None
        chunk_bytes, odd_count = _chunk(one.writes, pairing)
        return _Match(offset, pairing, verdict is True or odd_count >= ODD_MIN, chunk_bytes)
    return None


def _offsets(one: Requests, other: Requests) -> list[int]:
    """How far the other's addresses may lie above the one's: the likeliest first.

    Addresses are mostly the same; else the distance that most neighbors in time have, or that of the lowest addresses.
    """
    one, other = _while_both_work(one, other)
    if min(len(one), len(other)) < WRITES_MIN:
        return []
    fewer, more, sign = (one, other, 1) if len(one) <= len(other) else (other, one, -1)
    picked = np.unique(np.linspace(0, len(fewer) - 1, min(len(fewer), SAMPLE)).astype(np.intp))
    near = np.searchsorted(more.begins, fewer.begins[picked])[:, None] + np.arange(-NEIGHBORS, NEIGHBORS)[None, :]
    is_there = (near >= 0) & (near < len(more))
    apart = more.firsts[near.clip(0, len(more) - 1)] - fewer.firsts[picked][:, None]
    votes, count = np.unique(apart[is_there], return_counts=True)
    likely = [0]
    if len(votes):
        likely.append(int(votes[count.argmax()]) * sign)
    likely.append(int(other.firsts.min() - one.firsts.min()))
    starts, ends = merged(more.firsts, more.lasts)

    def is_covered(places: Array) -> Array:
        begun = np.searchsorted(starts, places, side="right") - 1
        return np.asarray((begun >= 0) & (places < ends[begun.clip(0)]))

    # what the other never wrote to is soon told; the rest takes a closer look
    return [
        offset
        for offset in dict.fromkeys(likely)
        if is_covered(fewer.firsts[picked] + sign * offset).mean() >= SAME / 2
    ]


def _while_both_work(one: Requests, other: Requests) -> tuple[Requests, Requests]:
    """Those that were outstanding between the later leg's first write and the earlier leg's last."""
    since = max(one.begins.min(), other.begins.min())
    until = min(one.ends.max(), other.ends.max())
    first, second = (each.where((each.ends >= since) & (each.begins <= until)) for each in (one, other))
    return first, second


def _is_same(one: Leg, other: Leg, there: Requests, pairing: Pairing, offset: int) -> bool:
    """Whether nearly all of either leg's writes are on both, from the first that is to the last."""
    if len(np.unique(pairing.one)) < WRITES_MIN or len(np.unique(pairing.other)) < WRITES_MIN:
        return False
    # before it was assembled, and after it was stopped, the members may have been written to one after the other
    since = min(one.writes.begins[pairing.one].min(), there.begins[pairing.other].min())
    until = max(one.writes.ends[pairing.one].max(), there.ends[pairing.other].max())
    for requests, matched, source_reads in (
        (one.writes, pairing.matched_bytes(len(one.writes)), other.reads.moved(-offset)),
        (there, pairing.matched_bytes(len(there), of_other=True), one.reads),
    ):
        is_whole = matched == requests.lengths
        is_counted = is_whole | ((requests.ends >= since) & (requests.begins <= until))
        if not is_counted.any():
            return False
        alone = np.flatnonzero(is_counted & ~is_whole)
        is_counted[alone[_is_copy(requests.where(alone), source_reads)]] = False
        lengths = requests.lengths[is_counted]
        if is_whole[is_counted].mean() < SAME or matched[is_counted].sum() < SAME * lengths.sum():
            return False
    return True


def _is_copy(writes: Requests, reads: Requests) -> Array:
    """Which writes bring what was just read from the other leg: a resync."""
    found = np.zeros(len(writes), dtype=bool)
    if not len(writes) or not len(reads):
        return found
    by_place = reads.where(np.lexsort((reads.ends, reads.firsts)))

    def was_read(bytes_at: Array) -> Array:
        place = np.searchsorted(by_place.firsts, bytes_at, side="right") - 1
        read = place.clip(0)
        since = writes.begins - by_place.ends[read]
        return np.asarray((place >= 0) & (by_place.lasts[read] > bytes_at) & (since >= 0) & (since <= COPIED_NS))

    # what was read at once may be written in pieces, and the other way round
    return was_read(writes.firsts) & was_read(writes.lasts - 1)


def _starts(source: Source) -> tuple[Array, Array] | None:
    """How each cycle's data begin: bytes captured of it (0 for none) and their checksum; None when nobody asked."""
    try:
        table = source("write_starts")
    except (InputInvalid, LookupError):
        return None
    return _by_cycle(table, len(source("cycles")))


def _by_cycle(table: Table, count: int) -> tuple[Array, Array]:
    captured, checksums = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    cycle = table.raw("cycle").astype(np.intp)
    captured[cycle], checksums[cycle] = table.raw("bytes"), table.raw("crc32c")
    return captured, checksums


def _compare(one: Requests, other: Requests, pairing: Pairing, starts: tuple[Array, Array] | None) -> bool | None:
    """Whether what is written to both is the same: None where the capture does not tell.

    Writes that begin at the same place are compared. What most writes begin with (zeros) proves nothing.
    """
    if starts is None:
        return None
    captured, checksums = starts
    begins_alike = one.firsts[pairing.one] == other.firsts[pairing.other]
    both = np.unique(np.stack([pairing.one[begins_alike], pairing.other[begins_alike]]), axis=1)
    rows, other_rows = one.rows[both[0]], other.rows[both[1]]
    is_comparable = (captured[rows] > 0) & (captured[rows] == captured[other_rows])
    mine, theirs = checksums[rows[is_comparable]], checksums[other_rows[is_comparable]]
    is_whole = captured[rows[is_comparable]] >= START_BYTES
    if not len(mine):
        return None
    values, count = np.unique(np.concatenate([mine, theirs]), return_counts=True)
    commonest = values[count.argmax()] if count.max() > 2 else None
    differing = int((mine != theirs).sum())
    proving = int(((mine == theirs) & is_whole & (mine != commonest)).sum())
    if len(mine) - differing < AGREES * len(mine):
        return False
    return True if proving > differing else None


def _chunk(one: Requests, pairing: Pairing) -> tuple[int, int]:
    """The largest power of two that divides every extent on both legs, and how many extents no page divides."""
    both = np.unique(pairing.one)
    bits = np.bitwise_or.reduce(one.firsts[both] | one.lasts[both])
    odd = int(((one.firsts[both] | one.lasts[both]) % PAGE_BYTES != 0).sum())
    return int(bits & -bits) if bits else 0, odd
