"""Which sides are mirrors of each other: the same extents are written to both at the same time, again and again.

Where the first bytes of the data were captured, they decide: a stripe that is written in whole rows has the same
addresses at the same times, but different data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.relate.mirrors import sides
from iscsitrace.relate.mirrors.pairing import WRITES_MIN, Pairing, pair, possible_offsets
from iscsitrace.relate.mirrors.sides import MirrorSide, Requests
from iscsitrace.relate.volumes import Volumes
from iscsitrace.tables.numbers import distinct, order_of
from iscsitrace.tables.table import Array, Source, Table

PAIRED_MAX: Final = 16
"""Sides up to which each may be a copy of each other: so few pairs are compared as quickly."""
SAMPLE: Final = 64
"""Writes of each side whose neighbors are looked at."""
NEIGHBORS: Final = 4
"""Neighbors before and after each of them: a write and its copies on up to five sides are together."""
SHARE: Final = 0.25
"""Least share of these writes that have a neighbor on the other side, for either of both: one may have been written for
long before the other was. Each of many unrelated volumes is a neighbor of few writes."""
COUNT_MIN: Final = 2
"""Least number of them: any two writes are some distance apart."""


def of_host(sides: Sequence[MirrorSide]) -> list[list[int]]:
    """For each side of a host the places of those after it that may be its copies, in order."""
    count = len(sides)
    if count <= PAIRED_MAX:
        return [list(range(place + 1, count)) for place in range(count)]
    found: list[list[int]] = [[] for _ in sides]
    for place, other in _pairs(sides):
        found[place].append(other)
    return found


def _pairs(sides: Sequence[MirrorSide]) -> list[tuple[int, int]]:
    """Places of two sides that may be copies of each other, in order."""
    firsts, begins = (np.concatenate([getattr(side.writes, name) for side in sides]) for name in ("firsts", "begins"))
    sizes = [len(side.writes) for side in sides]
    place = np.repeat(np.arange(len(sides)), sizes)
    picked = [np.arange(size) if size <= SAMPLE else np.linspace(0, size - 1, SAMPLE).astype(np.intp) for size in sizes]
    rows = np.concatenate([each + base for each, base in zip(picked, np.cumsum([0, *sizes[:-1]]), strict=True)])
    least = np.maximum(SHARE * np.array([len(each) for each in picked]), COUNT_MIN)
    found = set()
    for order, is_by_address in ((np.lexsort((begins, firsts)), True), (np.argsort(begins, kind="stable"), False)):
        row, near = _neighbors(order, rows)
        one, other, apart = place[row], place[near], firsts[near] - firsts[row]
        is_wanted = (one != other) & ((apart == 0) | (not is_by_address))
        one, other, apart = (each[is_wanted] for each in (one, other, apart))
        # few sides are neighbors that often, at any distance
        _, pair = distinct(one * len(sides) + other)
        often = np.flatnonzero(np.bincount(pair)[pair] >= least[one])
        sort = often[np.argsort(apart[often])]
        sort = sort[order_of(pair[sort])]
        one, other, apart = (each[sort] for each in (one, other, apart))
        is_next = np.ones(len(one), dtype=bool)
        is_next[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1]) | (apart[1:] != apart[:-1])
        starts = np.flatnonzero(is_next)
        enough = starts[np.diff(starts, append=len(one)) >= least[one[starts]]]
        found |= {(min(pair), max(pair)) for pair in zip(one[enough].tolist(), other[enough].tolist(), strict=True)}
    return sorted(found)


def _neighbors(order: Array, rows: Array) -> tuple[Array, Array]:
    """Pairs of each of these rows with its neighbors in this order of all rows."""
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    steps = np.array([step for step in range(-NEIGHBORS, NEIGHBORS + 1) if step])
    near = place[rows][:, None] + steps
    is_there = (near >= 0) & (near < len(order))
    return rows[np.nonzero(is_there)[0]], order[near[is_there]]


SAME: Final = 0.9
"""Share of the writes, and of their bytes, that need to be on both sides: the capture may miss one in ten commands, or
begin among them. Far fewer writes of unrelated programs coincide.
"""
ODD_MIN: Final = 8
"""Writes on both sides not aligned to a page that it takes to rule out a stripe: superblocks, on all members of any
array, are not aligned either, but fewer."""
AGREES: Final = 0.9
"""Share of the compared writes whose first bytes need to agree: rarely a host changes its memory between two copies."""
START_BYTES: Final = 64
"""First bytes that it takes to prove that data is the same, because many blocks begin with a name or number; any
difference proves that it differs."""
PAGE_BYTES: Final = 4096
"""No stripe of Linux (md, device mapper) has chunks smaller than a page."""
COPIED_NS: Final = 1_000_000_000
"""Time after a read from one side within which a write of the same extent to the other is a resync."""


@dataclass(frozen=True)
class Mirror:
    """Sides that carry the same writes."""

    sides: tuple[MirrorSide, ...]
    offsets: tuple[int, ...]
    """Offset in bytes of each side's addresses to those of the first."""
    pairings: tuple[Pairing, ...]
    """Pairings of the first side's writes with those of each other side."""
    is_sure: bool
    """Whether a stripe is ruled out."""
    chunk_bytes: int
    """The largest chunk of a stripe with these extents."""

    @property
    def sessions(self) -> tuple[int, ...]:
        """The sessions of all sides, in order."""
        return tuple(dict.fromkeys(session for side in self.sides for session in side.sessions))


def find(source: Source, volumes: Volumes | None = None) -> list[Mirror]:
    """Every mirror of a trace; ``source`` is its method ``table``; ``volumes`` are found if not given."""
    every = sides.of_trace(source, volumes, WRITES_MIN)
    if not every:
        return []
    found = _mirrors(every, _likely(every), _starts(source))
    return sorted(found, key=lambda mirror: mirror.sides[0].volume.number)


def _likely(every: Sequence[MirrorSide]) -> dict[int, list[tuple[int, list[int]]]]:
    """For each side those after it that may be its copies, by place, each with possible offsets."""
    by_host: dict[str, list[int]] = {}
    for place, side in enumerate(every):
        by_host.setdefault(side.host, []).append(place)
    pairs = [
        (own[place], own[other])
        for own in by_host.values()
        for place, others in enumerate(of_host([every[each] for each in own]))
        for other in others
    ]
    found: dict[int, list[tuple[int, list[int]]]] = {}
    likely = possible_offsets([(every[place].writes, every[other].writes) for place, other in pairs])
    for (place, other), each in zip(pairs, likely, strict=True):
        if each:
            found.setdefault(place, []).append((other, each))
    return found


def _mirrors(
    every: Sequence[MirrorSide],
    likely: Mapping[int, Sequence[tuple[int, Sequence[int]]]],
    starts: tuple[Array, Array] | None,
) -> Iterator[Mirror]:
    """The mirrors among the sides; each side is one of one mirror at most."""
    taken: set[int] = set()
    for place, others in likely.items():
        if place in taken:
            continue
        first = every[place]
        copies = [
            (other, match)
            for other, each in others
            if other not in taken
            if (match := _match(first, every[other], each, starts)) is not None
        ]
        taken.update(other for other, _ in copies)
        if copies:
            yield Mirror(
                (first, *(every[other] for other, _ in copies)),
                (0, *(match.offset for _, match in copies)),
                tuple(match.pairing for _, match in copies),
                all(match.is_sure for _, match in copies),
                min(match.chunk_bytes for _, match in copies),
            )


@dataclass(frozen=True)
class _Match:
    """How two sides match."""

    offset: int
    pairing: Pairing
    is_sure: bool
    chunk_bytes: int


def _match(
    one: MirrorSide, other: MirrorSide, likely: Iterable[int], starts: tuple[Array, Array] | None
) -> _Match | None:
    """How they match at the first of these offsets at which they do."""
    for offset in likely:
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


def _is_same(one: MirrorSide, other: MirrorSide, there: Requests, pairing: Pairing, offset: int) -> bool:
    """Whether nearly all writes of either side are on both, from the first common write to the last."""
    if len(np.unique(pairing.one)) < WRITES_MIN or len(np.unique(pairing.other)) < WRITES_MIN:
        return False
    # before the array is assembled, and after it is stopped, hosts write to the members one after the other
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
    """Which writes carry what was just read from the other side: a resync."""
    found = np.zeros(len(writes), dtype=bool)
    if not len(writes) or not len(reads):
        return found
    by_place = reads.where(np.lexsort((reads.ends, reads.firsts)))

    def was_read(bytes_at: Array) -> Array:
        place = np.searchsorted(by_place.firsts, bytes_at, side="right") - 1
        since = writes.begins - by_place.ends[place]
        return np.asarray((place >= 0) & (by_place.lasts[place] > bytes_at) & (since >= 0) & (since <= COPIED_NS))

    # a read may be written in several pieces, and several reads in one
    return was_read(writes.firsts) & was_read(writes.lasts - 1)


def _starts(source: Source) -> tuple[Array, Array] | None:
    """First bytes of each command's data: number captured (0 for none) and checksum; None if they were not read."""
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
    """Whether the data written to both sides is the same; None where the capture does not show it.

    Writes that begin at the same address are compared. The commonest first bytes (zeros) prove nothing.
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
    """The largest power of two that divides every extent on both sides, and the number of unaligned extents."""
    both = np.unique(pairing.one)
    bits = np.bitwise_or.reduce(one.firsts[both] | one.lasts[both])
    odd = int(((one.firsts[both] | one.lasts[both]) % PAGE_BYTES != 0).sum())
    return int(bits & -bits), odd
