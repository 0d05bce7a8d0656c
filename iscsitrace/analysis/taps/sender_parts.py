"""The time breakdown of the initiator's tap, with the limits of a far sender as the tap beside it shows them.

When a sender waited, the first tap shows: it is the time of its breakdown. What it waited for, the tap beside the
sender shows better: when a recovery began and ended, and whether a window was full. So waits of the target's TCP get
the part that the target's tap shows for the same instant, one way earlier. A wait for the receive window stays one: the
first tap is beside the receiver that advertises it. No other time changes its part, and no time is moved.
"""

from __future__ import annotations

from collections.abc import Callable
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


def budget(
    own: Table, other: Table, cycles: Table, connections: Array, passed: Callable[[Array], Array]
) -> Table:  # fmt: skip
    """The table ``budget`` of the first tap, with the limits of the target's TCP in reads as ``other`` has them.

    ``other`` is that of the target's tap, with the numbers and the clock of the first. ``connections`` are those that
    it knows better; ``passed`` has the time at which the first tap sees what the target sent at a time.
    """
    cycle = numbers_of(own, "cycle")
    is_read = (cycle >= 0) & ~_at(cycles.raw("is_write"), cycle)
    connection = np.where(cycle >= 0, _at(cycles.raw("connection"), cycle).astype(np.int64), -1)
    is_movable = is_read & np.isin(connection, connections) & np.isin(own.raw("part"), _codes(_UNSURE))
    is_limit = np.isin(other.raw("part"), _codes(_LIMITS)) & known(other, "connection")
    cuts: list[tuple[Array, Array, Array, Array]] = []
    for number in np.unique(connection[is_movable]).tolist():
        limits = other.select(is_limit & (other.raw("connection") == number))
        # the session's time, and that of one of its connections, are apart
        for is_own in (known(own, "connection"), ~known(own, "connection")):
            rows = np.flatnonzero(is_movable & is_own & (connection == number))
            if len(rows) and len(limits):
                cuts.append(_cut(own, rows, limits, passed))
    return _replaced(own, cuts) if cuts else own


def _cut(own: Table, rows: Array, limits: Table, passed: Callable[[Array], Array]) -> tuple[Array, Array, Array, Array]:
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
    codes = np.where(is_shown, limits.raw("part")[by_time][place], own.raw("part")[rows[row]])
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
