"""The surroundings of a story: the tables of the whole trace, and facts that all of its stories share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from iscsitrace.relate.host_questions import HostQuestions
from iscsitrace.tables.partition import ByConnection
from iscsitrace.tables.table import Source

_Fact = TypeVar("_Fact")


class TapOf(Protocol):
    """What sentences call the tap that shows how the sender of a direction behaved.

    All else is shown by the tap nearest to the initiator, which is that of the direction to the target.
    """

    def __call__(self, connection: int, *, to_target: bool) -> str:
        """``tap``, or, where there are several, ``tap target.pcapng``."""


def only_tap(connection: int, *, to_target: bool) -> str:
    """Where there is one tap, it needs no name."""
    return "tap"


class Surroundings(ByConnection):
    """The tables of a trace, called by name, with their rows by connection.

    What every story asks of the whole trace is computed once: ten thousand stories must not cost their square.
    """

    def __init__(self, source: Source, tap_of: TapOf = only_tap, start_ns: int | None = None) -> None:
        """``source`` has the tables of the whole trace, which began at ``start_ns``: with its first connection, where
        nothing is given.
        """
        super().__init__(source)
        self.tap_of = tap_of
        self._start_ns = start_ns
        self._facts: dict[Callable[[Surroundings], Any], Any] = {}

    def once(self, compute: Callable[[Surroundings], _Fact]) -> _Fact:
        """Call a function on these surroundings, once; later calls return the same result."""
        if compute not in self._facts:
            self._facts[compute] = compute(self)
        fact: _Fact = self._facts[compute]
        return fact

    def start_ns(self) -> int:
        """The zero of the times that sentences say."""
        return self.once(_start_ns) if self._start_ns is None else self._start_ns

    def end_ns(self) -> int:
        """The last packet of any connection."""
        return self.once(_end_ns)


def host_questions(trace: Surroundings) -> HostQuestions:
    """Which hosts asked for others, and had no answer."""
    return HostQuestions(trace)


def _start_ns(trace: Surroundings) -> int:
    return int(trace("connections").raw("time_first_ns").min(initial=np.iinfo(np.int64).max))


def _end_ns(trace: Surroundings) -> int:
    return int(trace("connections").raw("time_last_ns").max(initial=np.iinfo(np.int64).min))
