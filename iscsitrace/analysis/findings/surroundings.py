"""The surroundings of a story: the tables of the whole trace, and facts that all of its stories share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from iscsitrace.tables.partition import ByConnection
from iscsitrace.tables.table import Source

_Fact = TypeVar("_Fact")


class Surroundings(ByConnection):
    """The tables of a trace, called by name, with their rows by connection.

    What every story asks of the whole trace is computed once: ten thousand stories must not cost their square.
    """

    def __init__(self, source: Source) -> None:
        """``source`` has the tables of the whole trace."""
        super().__init__(source)
        self._facts: dict[Callable[[Surroundings], Any], Any] = {}

    def once(self, compute: Callable[[Surroundings], _Fact]) -> _Fact:
        """Call a function on these surroundings, once; later calls return the same result."""
        if compute not in self._facts:
            self._facts[compute] = compute(self)
        fact: _Fact = self._facts[compute]
        return fact

    def start_ns(self) -> int:
        """The first packet of any connection."""
        return self.once(_start_ns)

    def end_ns(self) -> int:
        """The last packet of any connection."""
        return self.once(_end_ns)


def _start_ns(trace: Surroundings) -> int:
    return int(trace("connections").raw("time_first_ns").min(initial=np.iinfo(np.int64).max))


def _end_ns(trace: Surroundings) -> int:
    return int(trace("connections").raw("time_last_ns").max(initial=np.iinfo(np.int64).min))
