"""Connections to which nothing happened in this interval nor in the one before: their lines stay as they were.

Of thousands of open connections most are idle, and an interval must cost what happened in it. Nothing happened to a
connection without packets and without commands in flight or gone, that was neither opened nor closed. After one such
interval only its time breakdown may change: it is quiet if that is the same, too.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.budget import Budgets
from iscsitrace.measure.busy import BUSY
from iscsitrace.tables.live_pass import PassView
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import places_of
from iscsitrace.tables.table import Table

Array = NDArray[Any]


@dataclass
class _Interval:
    """What the connections of an interval show, in order of their numbers."""

    kind: Hashable
    numbers: Array
    figures: Array
    """Numbers of packets and the like; a row for each."""
    sums_ns: Array
    """Their time breakdowns, likewise."""
    is_active: Array
    """Commands are in flight or gone, or it was closed."""
    still: frozenset[int] = frozenset()
    """Those to which nothing happened."""


class Quiet:
    """The quiet connections, interval by interval."""

    def __init__(self) -> None:
        self._last: _Interval | None = None

    def update(self, view: PassView, budgets: Budgets, kind: Hashable) -> frozenset[int]:
        """Those of this interval; ``budgets`` are of its connections. None are where its ``kind`` is a new one."""
        last, now = self._last, _interval(view, budgets, kind)
        self._last = now
        if last is None or last.kind != now.kind:
            return frozenset()
        place = places_of(now.numbers, last.numbers)
        is_still = (place >= 0) & ~now.is_active
        is_still &= (now.figures == last.figures[place]).all(axis=1) if len(last.numbers) else False
        now.still = frozenset(now.numbers[is_still].tolist())
        place, numbers = place[is_still], now.numbers[is_still]
        is_same = (now.sums_ns[is_still] == last.sums_ns[place]).all(axis=(1, 2))
        return last.still.intersection(numbers[is_same].tolist())


def is_closed(connections: Table) -> Array:
    """Whether both sides closed each connection, or one of them reset it."""
    fins, resets = (
        [known(connections, f"{flag}_to_{side}_ns") for side in ("target", "initiator")] for flag in ("fin", "rst")
    )
    found: Array = np.logical_and.reduce(fins) | np.logical_or.reduce(resets)
    return found


def _interval(view: PassView, budgets: Budgets, kind: Hashable) -> _Interval:
    connections = view.trace.connections
    order = np.argsort(connections.raw("connection"), kind="stable")
    numbers = connections.raw("connection")[order].astype(np.int64)
    is_open = np.isin(numbers, [row["connection"] for row in view.now])
    place = places_of(numbers, budgets.numbers)
    has_budget = place >= 0
    sums_ns = np.zeros((len(numbers), *budgets.sums_ns.shape[1:]), dtype=np.int64)
    sums_ns[has_budget] = budgets.sums_ns[place[has_budget]]
    packets = [connections.raw(name)[order] for name in ("packets_to_target", "packets_to_initiator", "session")]
    columns = [*packets, is_open, has_budget]
    figures = np.column_stack([column.astype(np.int64) for column in columns])
    in_flight = [row["connection"] for row in view.now if row["open_task_count"] or len(row["begun_ns"])]
    is_active = np.isin(
        numbers, np.concatenate([np.array(in_flight, dtype=np.int64), view.trace.cycles.raw("connection")])
    )
    is_active |= is_closed(connections)[order] | sums_ns[:, BUSY].any(axis=1)
    return _Interval(kind, numbers, figures, sums_ns, is_active)
