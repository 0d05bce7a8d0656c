"""A pass over the captures of a ring that can be left between two of them, and continued from its state elsewhere.

Its rows are those of one pass over the whole ring, wherever captures end: the state is all that a pass knows there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from numpy.typing import NDArray

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables.schema import ON_REQUEST, TABLES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables

try:
    from iscsitrace import _core
except ImportError as error:  # a source tree without the compiled core; reading says so, all else works
    _core_missing: ImportError | None = error
else:
    _core_missing = None


@dataclass(frozen=True)
class CaptureRead:
    """What was read of one capture."""

    first_frame: int
    """Number of its first frame in the ring, from 1."""
    info: dict[str, Any]
    """As in ``TraceTables.inputs``; the format is ``empty`` or ``unreadable`` if nothing was read."""


@dataclass(frozen=True)
class Period:
    """A part of the ring's time, as if the input were that part alone.

    A period ends at a full hour (UTC), or after 32,768 commands or four million packets, wherever captures end. It has
    the commands that had not ended before it, the exchanges that began in it, and the connections and sessions with
    packets in it. Counts are those of the period; RTTs and windows are what is known at its end.
    """

    from_ns: int
    """What ended before is of an earlier period; the earliest time of all in the first one."""
    last_ns: int
    """Time of its last packet."""
    trace: TraceTables
    """Its tables, with those on request of PERIOD_TABLES; frames, sessions and connections have the ring's numbers."""
    cycle_numbers: NDArray[Any]
    """The number in the ring of each row of ``cycles``; null where it is not known yet."""


PERIOD_TABLES: Final = ("budget", "recoveries", "retransmissions", "senders", "violations", "write_starts")
"""The tables on request of a period: those of a diagnosis."""


class RingPass:
    """A pass over captures in order of time, one by one."""

    def __init__(
        self, state: bytes | None = None, *, tables: Iterable[str] = ("pdus",), has_periods: bool = False
    ) -> None:
        """Begins a pass, or continues one from what :meth:`state` gave; its tables are those that it began with.

        ``tables`` names those of schema.ON_REQUEST to fill; all others always are. ``has_periods`` makes the tables of
        each period beside them; those on request are then ``pdus`` alone. Raises InputInvalid for an unknown table, or
        a state that is damaged or of another version.
        """
        if _core_missing is not None:
            raise InputInvalid(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
        self.requested = tuple(tables)
        for name in self.requested:
            if name not in ON_REQUEST:
                raise InputInvalid(f"unknown table on request {name}; there are {', '.join(ON_REQUEST)}")
        if has_periods and set(self.requested) - {"pdus"}:
            raise InputInvalid(f"periods go with none of {', '.join(sorted(set(self.requested) - {'pdus'}))}")
        try:
            self._core = (
                _core.Ring(tables=self.requested, has_periods=has_periods)
                if state is None
                else _core.Ring.from_state(state)
            )
        except ValueError as error:
            raise InputInvalid(str(error)) from error

    def read(
        self,
        source: str | os.PathLike[str] | bytes | BinaryIO,
        *,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> CaptureRead:
        """Reads one capture to its end. A damaged, empty or unreadable one is counted in ``counters``.

        Raises CaptureUnreadable for one that is empty or unreadable before the first packet of all: the pass goes on.
        Exceptions of a file object or of ``progress`` propagate: the pass is of no more use then.
        """
        named = os.fsdecode(source) if isinstance(source, os.PathLike) else source
        try:
            return CaptureRead(*self._core.read(named, progress=progress))
        except _core.CaptureError as error:
            raise CaptureUnreadable(str(error)) from error

    def take(self) -> dict[str, Table]:
        """The rows that can no longer change, each once, by table; tables without any are left out."""
        core_pass = self._core.take()
        trace = _trace(core_pass, self.requested)
        return {name: trace.table(name) for name in self._names if core_pass.row_count(name)}

    def state(self) -> bytes:
        """All that the pass knows but the rows that were taken."""
        return self._core.state()

    def write_state(self, path: str | os.PathLike[str]) -> None:
        """Writes the state into a file: it is not in memory then. OSError if that fails."""
        self._core.write_state(os.fspath(path))

    def take_periods(self) -> list[Period]:
        """The periods that ended since the last call, each once."""
        return [_period(*parts) for parts in self._core.take_periods()]

    def open_period(self) -> Period | None:
        """The period that has not ended, as if it ended now; None without packets."""
        parts = self._core.open_period()
        return None if parts is None else _period(*parts)

    def finish(self) -> dict[str, Table]:
        """All other rows, by table; the pass is over."""
        trace = _trace(self._core.finish(), self.requested)
        return {name: trace.table(name) for name in self._names}

    @property
    def _names(self) -> list[str]:
        return [name for name in TABLES if name not in ON_REQUEST or name in self.requested]


def _period(from_ns: int, last_ns: int, core_pass: _core.Pass, cycle_numbers: NDArray[Any]) -> Period:
    return Period(from_ns, last_ns, _trace(core_pass, PERIOD_TABLES), cycle_numbers)


def _trace(core_pass: _core.Pass, tables: Iterable[str]) -> TraceTables:
    return TraceTables(core_pass, {"tables": list(tables)})
