"""The time breakdown of the initiator's tap, with what the target did and waited for as the target's tap shows it.

When time passes, the first tap shows: it is the time of its breakdown. What the target's host waited for then, the tap
beside it shows better: whether it had a command, when a recovery began and ended, whether a window was full. So waits
get the part that the target's tap shows for the same instant, one way earlier. A wait for the receive window stays one:
the first tap is beside the receiver that advertises it. No other time changes its part, and no time is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.budget import PARTS
from iscsitrace.analysis.measures.nulls import known, numbers_of
from iscsitrace.tables.table import Table

Array = NDArray[Any]

_LIMITS: Final = ("receive_window", "congestion_window", "send_buffer", "ack_wait", "loss_recovery")
"""What stops the TCP of a sender."""
_UNSURE: Final = ("congestion_window", "send_buffer", "ack_wait", "loss_recovery", "unknown")
"""Parts of the first tap that the other may know better."""
_IN_WRITES: Final = {
    ("target_service", "propagation"): "propagation",
    ("target_service", "initiator_think"): "propagation",
}
"""By part of the first tap and part of the other: the part of an instant. Only the target's tap sees when a command is
there, and when it is answered.
"""
_IN_READS: Final = {
    **_IN_WRITES,
    **{(own, limit): limit for own in (*_UNSURE, "target_service") for limit in _LIMITS},
    ("loss_recovery", "target_service"): "target_service",
}


def budget(
    own: Table, other: Table, cycles: Table, connections: Array, passed: Callable[[Array], Array]
) -> Table:  # fmt: skip
    """The table ``budget`` of the first tap, with the waits for the target's host as ``other`` has them.

    ``other`` is that of the target's tap, with the numbers and the clock of the first. ``connections`` are those that
    it knows better; ``passed`` has the time at which the first tap sees what the target sent at a time.
    """
    cycle = numbers_of(own, "cycle")
    is_read = (cycle >= 0) & ~_at(cycles.raw("is_write"), cycle)
    connection = np.where(cycle >= 0, _at(cycles.raw("connection"), cycle).astype(np.int64), -1)
    is_known = (cycle >= 0) & np.isin(connection, connections)
    cuts: list[tuple[Array, Array, Array, Array]] = []
    for is_way, known_better in ((is_read, _IN_READS), (~is_read, _IN_WRITES)):
        is_movable = is_known & is_way & np.isin(own.raw("part"), _codes(tuple(own for own, _ in known_better)))
        parts = _codes(tuple(other for _, other in known_better))
        is_better = np.isin(other.raw("part"), parts) & known(other, "connection")
        for number in np.unique(connection[is_movable]).tolist():
            better = other.select(is_better & (other.raw("connection") == number))
            # the session's time, and that of one of its connections, are apart
            for is_own in (known(own, "connection"), ~known(own, "connection")):
                rows = np.flatnonzero(is_movable & is_own & (connection == number))
                if len(rows) and len(better):
                    cuts.append(_cut(own, rows, better, passed, _lookup(known_better)))
    return _replaced(own, cuts) if cuts else own


def _lookup(known_better: Mapping[tuple[str, str], str]) -> Array:
    """By code of a part of the first tap and of the other: the code of the part, shape (PARTS, PARTS)."""
    found = np.repeat(np.arange(len(PARTS))[:, None], len(PARTS), axis=1)
    for (own, other), part in known_better.items():
        found[PARTS.index(own), PARTS.index(other)] = PARTS.index(part)
    return found


def _cut(
    own: Table, rows: Array, limits: Table, passed: Callable[[Array], Array], lookup: Array
) -> tuple[Array, Array, Array, Array]:
    """Row, start, end and part of each piece of these rows, which are disjoint; in order of time."""
    starts, ends = own.raw("time_first_ns")[rows], own.raw("time_last_ns")[rows]
    order = np.argsort(starts, kind="stable")
    rows, starts, ends = rows[order], starts[order], ends[order]
    by_time = np.argsort(limits.raw("time_first_ns"), kind="stable")
    # of a delay that falls, what was sent later may arrive no later
    others = np.stack([limits.raw(name)[by_time] for name in ("time_first_ns", "time_last_ns")], axis=1)
    others = np.maximum.accumulate(passed(others.reshape(-1))).reshape(-1, 2)
    edges = np.unique(np.concatenate([starts, ends, others.reshape(-1)]))
    low, high = edges[:-1], edges[1:]
    row = np.searchsorted(starts, low, side="right") - 1
    is_inside = (row >= 0) & (low < ends[row])
    low, high, row = low[is_inside], high[is_inside], row[is_inside]
    place = np.searchsorted(others[:, 0], low, side="right") - 1
    is_shown = (place >= 0) & (low < others[place, 1])
    codes = own.raw("part")[rows[row]]
    codes = np.where(is_shown, lookup[codes, limits.raw("part")[by_time][place]], codes)
    # pieces of one row and part are one
    is_new = np.append(True, (np.diff(row) != 0) | (np.diff(codes.astype(np.int64)) != 0))
    is_last = np.append(is_new[1:], True)
    return rows[row[is_new]], low[is_new], high[is_last], codes[is_new]


def _replaced(own: Table, cuts: list[tuple[Array, Array, Array, Array]]) -> Table:
    """The table with the pieces in the places of their rows."""
    row, low, high, code = (np.concatenate(each) for each in zip(*cuts, strict=True))
    order = np.lexsort([low, row])
    row, low, high, code = row[order], low[order], high[order], code[order]
    counts = np.ones(len(own), dtype=np.intp)
    counts[np.unique(row)] = np.bincount(row, minlength=len(own))[np.unique(row)]
    source = np.repeat(np.arange(len(own)), counts)
    columns = {name: own.raw(name)[source] for name in own}
    is_piece = np.isin(source, row)
    for name, values in (("time_first_ns", low), ("time_last_ns", high), ("part", code)):
        columns[name][is_piece] = values
    masks = {name: mask[source] for name in own if (mask := own.mask(name)) is not None}
    # the part decides whether a row of a category is null
    masks.pop("part", None)
    return own.like(columns, masks)


def _codes(parts: tuple[str, ...]) -> list[int]:
    return [PARTS.index(part) for part in parts]


def _at(values: Array, places: Array) -> Array:
    """The values in these places; of a negative place that of the first."""
    if not len(values):
        return np.zeros(len(places), dtype=values.dtype)
    return np.asarray(values[places.clip(0)])
