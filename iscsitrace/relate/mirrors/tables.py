"""The tables ``mirrored_writes`` and ``mirror_legs`` of the schema, from mirrored writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.relate.mirrors.writes import NO_END, MirroredWrites
from iscsitrace.tables.schema import CATEGORIES, DERIVED_TABLES
from iscsitrace.tables.table import NO_WORD, Source, Table, null_value

Array = NDArray[Any]
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
