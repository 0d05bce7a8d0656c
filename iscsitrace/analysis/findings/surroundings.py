"""The surroundings of a story: the tables of the whole trace, and facts that all of its stories share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]
_Fact = TypeVar("_Fact")


class Surroundings:
    """The tables of a trace, called by name, with their rows by connection.

    What every story asks of the whole trace is computed once: ten thousand stories must not cost their square.
    """

    def __init__(self, source: Source) -> None:
        """``source`` has the tables of the whole trace."""
        self._source = source
        self._facts: dict[Callable[[Surroundings], Any], Any] = {}
        self._split: dict[str, tuple[Table, dict[int, Array]]] = {}

    def __call__(self, name: str) -> Table:
        """A table of the trace."""
        return self._source(name)

    def once(self, compute: Callable[[Surroundings], _Fact]) -> _Fact:
        """Call a function on these surroundings, once; later calls return the same result."""
        if compute not in self._facts:
            self._facts[compute] = compute(self)
        fact: _Fact = self._facts[compute]
        return fact

    def rows(self, name: str, connections: Iterable[int]) -> Table:
        """The rows of these connections in a table that has a column ``connection``, in the table's order."""
        if name not in self._split:
            self._split[name] = _by_connection(self(name))
        table, none, of_connection = self(name), *self._split[name]
        parts = [of_connection[number] for number in {*connections} if number in of_connection]
        if not parts:
            return none
        places = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
        return table if len(places) == len(table) else table.select(places)

    def start_ns(self) -> int:
        """The first packet of any connection."""
        return self.once(_start_ns)

    def end_ns(self) -> int:
        """The last packet of any connection."""
        return self.once(_end_ns)


def _by_connection(table: Table) -> tuple[Table, dict[int, Array]]:
    """No rows of a table, and the rows of each connection in its order."""
    numbers = table.raw("connection")
    order = np.argsort(numbers, kind="stable")
    every, firsts = np.unique(numbers[order], return_index=True)
    return table.select(slice(0, 0)), dict(zip(every.tolist(), np.split(order, firsts[1:]), strict=True)) if len(
        every
    ) else {}


def _start_ns(trace: Surroundings) -> int:
    return int(trace("connections").raw("time_first_ns").min(initial=np.iinfo(np.int64).max))


def _end_ns(trace: Surroundings) -> int:
    return int(trace("connections").raw("time_last_ns").max(initial=np.iinfo(np.int64).min))
