"""The writes of a mirror: when each was issued and completed on every side, and which side was last; and the tables
``mirrored_writes`` and ``mirror_legs`` of the schema.

A mirrored write is the smallest set of commands that covers the same extent on every side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from iscsitrace.relate.mirrors.recognition import Mirror
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES, DERIVED_TABLES
from iscsitrace.tables.table import NO_WORD, Array, Source, Table, null_value

NO_END: Final = np.iinfo(np.int64).min


@dataclass(frozen=True)
class MirroredWrites:
    """The writes of one mirror in order of time; arrays of two dimensions are (writes, sides)."""

    mirror: Mirror
    firsts: Array
    """First byte on the first side."""
    lengths: Array
    begins: Array
    """First command on any side."""
    side_begins: Array
    side_ends: Array
    """Last status on each side; NO_END where one was not captured."""
    side_rows: Array
    """Row of the first command on each side in ``cycles``."""
    side_last_rows: Array
    """Row of the command that was completed last."""
    side_counts: Array
    """Commands on each side."""
    side_rounds: Array
    """Most R2Ts of one command."""
    causes: Array
    """Codes of the category mirror_cause: why the last side was last; NO_WORD where it is unknown."""
    cause_ns: Array
    """The part of the skew that the cause explains."""

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def is_known(self) -> Array:
        """Which writes have a captured status on every side."""
        return np.asarray((self.side_ends != NO_END).all(axis=1))

    @property
    def ends(self) -> Array:
        """Last status on any side; NO_END where one is missing."""
        return np.where(self.is_known, self.side_ends.max(axis=1), NO_END)

    @property
    def skews(self) -> Array:
        """Time from completion on the first side to completion on the last; 0 where it is unknown."""
        return np.where(self.is_known, self.side_ends.max(axis=1) - self.side_ends.min(axis=1), 0)

    @property
    def first_sides(self) -> Array:
        """The side that finished first."""
        return np.asarray(self.side_ends.argmin(axis=1))

    @property
    def last_sides(self) -> Array:
        """The side that finished last."""
        return np.asarray(self.side_ends.argmax(axis=1))


def of_mirror(mirror: Mirror, source: Source) -> MirroredWrites:
    """Its writes, without causes."""
    sizes = [len(side.writes) for side in mirror.sides]
    bases = np.cumsum([0, *sizes])
    label, is_covered = _components(mirror, bases)
    count = len(mirror.sides)
    side_of = np.repeat(np.arange(count), sizes)
    firsts, lasts, begins, rows = (
        np.concatenate([getattr(side.writes, name) for side in mirror.sides])
        for name in ("firsts", "lasts", "begins", "rows")
    )
    cycles = source("cycles")
    has_status = known(cycles, "status_ns")[rows]
    ends = np.where(has_status, cycles.raw("status_ns")[rows], NO_END)
    rounds = cycles.raw("r2t_count")[rows].astype(np.int64)
    # a write counts where all of its commands are covered on all sides
    labels, write = np.unique(label, return_inverse=True)
    writes = len(labels)
    cells = write * count + side_of
    side_counts = np.bincount(cells, minlength=writes * count).reshape(writes, count)
    is_whole = (np.bincount(write, weights=~is_covered, minlength=writes) == 0) & (side_counts > 0).all(axis=1)

    def by_side(values: Array, start: int, function: Any) -> Array:
        made = np.full(writes * count, start, dtype=np.int64)
        function.at(made, cells, values)
        return made.reshape(writes, count)

    most = np.iinfo(np.int64).max
    side_begins = by_side(begins, most, np.minimum)
    side_ends = by_side(ends, NO_END, np.maximum)
    side_ends = np.where(by_side(has_status.astype(np.int64), 1, np.minimum) == 1, side_ends, NO_END)
    places = np.arange(len(rows))
    side_first = by_side(np.where(begins == side_begins.ravel()[cells], places, most), most, np.minimum)
    side_last = by_side(np.where(ends == side_ends.ravel()[cells], places, -1), -1, np.maximum)
    side_rounds = by_side(rounds, 0, np.maximum)
    low = by_side(firsts, most, np.minimum)[:, 0]
    high = by_side(lasts, 0, np.maximum)[:, 0]
    kept = np.flatnonzero(is_whole)
    kept = kept[np.argsort(side_begins[kept].min(axis=1), kind="stable")]
    return MirroredWrites(
        mirror=mirror,
        firsts=low[kept],
        lengths=(high - low)[kept],
        begins=side_begins[kept].min(axis=1),
        side_begins=side_begins[kept],
        side_ends=side_ends[kept],
        side_rows=rows[side_first[kept]],
        side_last_rows=rows[side_last[kept]],
        side_counts=side_counts[kept],
        side_rounds=side_rounds[kept],
        causes=np.full(len(kept), NO_WORD, dtype=np.uint8),
        cause_ns=np.zeros(len(kept), dtype=np.int64),
    )


def _components(mirror: Mirror, bases: Array) -> tuple[Array, Array]:
    """For the writes of all sides, concatenated: a number that those of one mirrored write share, and whether each is
    covered on the other sides (writes of the first side on all, of any other on the first).
    """
    total = int(bases[-1])
    label = np.arange(total)
    is_covered = np.ones(total, dtype=bool)
    left, right = [], []
    hub = mirror.sides[0].writes
    for place, pairing in enumerate(mirror.pairings, start=1):
        other = mirror.sides[place].writes
        left.append(pairing.one)
        right.append(pairing.other + bases[place])
        is_covered[: bases[1]] &= pairing.matched_bytes(len(hub)) == hub.lengths
        is_covered[bases[place] : bases[place + 1]] = pairing.matched_bytes(len(other), of_other=True) == other.lengths
    one, other_one = np.concatenate(left), np.concatenate(right)
    while True:
        least = np.minimum(label[one], label[other_one])
        joined = label.copy()
        np.minimum.at(joined, one, least)
        np.minimum.at(joined, other_one, least)
        # the number that a label points to may have been joined as well
        joined = np.minimum(joined, joined[joined])
        if (joined == label).all():
            return label, is_covered
        label = joined


_NO_FRAME = null_value("uint64")
_NO_NUMBER = null_value("uint32")


def mirrored_writes(found: Sequence[MirroredWrites], source: Source) -> Table:
    """A row per mirrored write."""
    return _table("mirrored_writes", [_writes(number, each, source) for number, each in enumerate(found)])


def mirror_legs(found: Sequence[MirroredWrites], source: Source) -> Table:
    """A row per mirrored write and side."""
    return _table("mirror_legs", [_sides(each, source) for each in found])


def largest_skews(mirrored: Table, *, slower_ns: int | None, top: int | None) -> Table:
    """The mirrored writes with a skew above ``slower_ns``; with ``top``, that many of the largest, largest first."""
    skews = np.ma.filled(np.ma.asarray(mirrored["skew_ns"]), -1)
    if slower_ns is not None:
        mirrored, skews = mirrored.select(skews > slower_ns), skews[skews > slower_ns]
    return mirrored if top is None else mirrored.select(np.argsort(-skews, kind="stable")[:top])


def sides_of(sides: Table, number: int) -> list[dict[str, Any]]:
    """The sides of one mirrored write: the rows of ``mirror_legs`` are in the order of the writes."""
    first, last = sides.raw("mirrored_write").searchsorted([number, number + 1])
    return list(sides.select(slice(int(first), int(last))).rows())


def _table(name: str, parts: Sequence[dict[str, Array]]) -> Table:
    """The rows of all mirrors, with consecutive numbers."""
    declaration = DERIVED_TABLES[name]
    columns: dict[str, Array] = {}
    first = np.cumsum([0, *(int(part["mirrored_write"].max(initial=-1)) + 1 for part in parts)])
    for column in declaration.columns:
        dtype = "uint8" if column.dtype.startswith("category:") else column.dtype
        values = [
            part[column.name] + (start if column.name == "mirrored_write" else 0)
            for part, start in zip(parts, first.tolist(), strict=False)
        ]
        columns[column.name] = np.concatenate([np.empty(0, dtype=dtype), *(each.astype(dtype) for each in values)])
        columns[column.name] = columns[column.name].astype(dtype)
    return Table(declaration, columns, words=CATEGORIES)


def _writes(number: int, found: MirroredWrites, source: Source) -> dict[str, Array]:
    count, rows = len(found), np.arange(len(found))
    first_side = found.mirror.sides[0]
    session = source("cycles").raw("session").astype(np.int64)
    is_known, nothing = found.is_known, null_value("int64")
    return {
        "mirror": np.full(count, number),
        "mirrored_write": rows,
        "lba": found.firsts // first_side.block_bytes,
        "block_count": found.lengths // first_side.block_bytes,
        "bytes": found.lengths,
        "leg_count": np.full(count, len(found.mirror.sides)),
        "begin_ns": found.begins,
        "end_ns": np.where(is_known, found.ends, nothing),
        "skew_ns": np.where(is_known, found.skews, nothing),
        "first_session": np.where(is_known, session[found.side_last_rows[rows, found.first_sides]], _NO_NUMBER),
        "last_session": np.where(is_known, session[found.side_last_rows[rows, found.last_sides]], _NO_NUMBER),
        "cause": found.causes,
        "cause_ns": np.where(found.causes != NO_WORD, found.cause_ns, nothing),
    }


def _sides(found: MirroredWrites, source: Source) -> dict[str, Array]:
    cycles = source("cycles")
    count = found.side_ends.shape[1]
    writes, sides = np.repeat(np.arange(len(found)), count), np.tile(np.arange(count), len(found))
    first, last, ends = found.side_rows.ravel(), found.side_last_rows.ravel(), found.side_ends.ravel()
    has_end, nothing = ends != NO_END, null_value("int64")
    is_known = found.is_known[writes]
    return {
        "mirrored_write": writes,
        "leg": sides,
        "session": cycles.raw("session")[last],
        "lun": cycles.raw("lun")[first],
        "cycle": cycles.raw("cycle")[first],
        "cycle_count": found.side_counts.ravel(),
        "r2t_count": found.side_rounds.ravel(),
        "begin_ns": found.side_begins.ravel(),
        "end_ns": np.where(has_end, ends, nothing),
        "wait_ns": np.where(is_known, found.ends[writes] - ends, nothing),
        "command_frame": cycles.raw("command_frame")[first],
        "status_frame": np.where(has_end, cycles.raw("status_frame")[last], _NO_FRAME),
    }
