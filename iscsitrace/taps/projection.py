"""The tables of a further tap with the numbers of connections and commands, and the clock, of the first.

Frames are those of another file: they are null. It never joins rows of two taps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Source, Table, null_value
from iscsitrace.taps.clock import Clock
from iscsitrace.taps.commands import Matched

Array = NDArray[Any]

_INSTANTS: Final = (
    *("time_ns", "time_first_ns", "time_last_ns", "original_ns", "black_out_first_ns", "black_out_last_ns"),
)


class OnFirst:
    """Tables with a column ``connection``, without the connections that the first tap lacks; called by name."""

    def __init__(self, source: Source, matched: Matched, clock: Clock) -> None:
        """``matched`` are the commands of the first tap (A) and of this one (B), ``clock`` is that of B less A."""
        self._source = source
        self._matched = matched
        self._clock = clock
        self._tables: dict[str, Table] = {}

    def __call__(self, name: str) -> Table:
        """The table with this name; each is made once."""
        if name not in self._tables:
            self._tables[name] = self._made(self._source(name))
        return self._tables[name]

    def _made(self, whole: Table) -> Table:
        pairs = {pair.at_b: pair.at_a for pair in self._matched.connections}
        at_first = _looked_up(pairs, whole.raw("connection"))
        rows = whole.select(at_first >= 0)
        columns: dict[str, Array] = {"connection": at_first[at_first >= 0].astype(np.uint32)}
        masks = {name: mask for name in rows if (mask := rows.mask(name)) is not None}
        for name in rows:
            if name in _INSTANTS:
                times = self._clock.on_a(rows.raw(name))
                columns[name] = np.where(known(rows, name), times, rows.raw(name))
            elif "frame" in name.split("_"):
                columns[name] = np.full(len(rows), null_value(rows.column(name).dtype), rows.raw(name).dtype)
                masks[name] = np.ones(len(rows), dtype=bool)
            elif name == "cycle":
                commands = dict(zip(self._matched.rows_b.tolist(), self._matched.rows_a.tolist(), strict=True))
                numbers = _looked_up(commands, rows.raw(name))
                masks[name] = numbers < 0
                columns[name] = np.where(numbers < 0, null_value("uint32"), numbers).astype(np.uint32)
        return rows.like({name: columns.get(name, rows.raw(name)) for name in rows}, masks)


def _looked_up(numbers: Mapping[int, int], values: Array) -> Array:
    """What each value stands for, int64; -1 for those that stand for nothing."""
    keys = np.array(sorted(numbers), dtype=np.int64)
    found = np.array([*(numbers[key] for key in keys.tolist()), -1], dtype=np.int64)
    place = np.searchsorted(keys, values.astype(np.int64))
    is_there = np.append(keys, -1)[place] == values
    return np.where(is_there, found[place], -1)
