"""Passes whose rows come before their end: over a source without one, and over the captures of a ring.

A live pass returns the commands completed since the last interval, each once, in bounded memory; the recent past is
kept for a diagnosis. A pass over a ring can be left between two captures and continued from its state elsewhere: its
rows are those of one pass over the whole ring, wherever captures end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables.schema import ON_REQUEST, TABLES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables

try:
    from iscsitrace import _core
except ImportError as error:  # a source tree without the compiled core; a pass says so, all else works
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


SECOND_NS = 1_000_000_000
DYNAMICS = ("budget", "recoveries", "retransmissions", "senders")
"""The tables on request that a live pass fills, unless it falls behind and drops them."""

Source = str | os.PathLike[str] | bytes | IO[bytes]


@dataclass(frozen=True)
class Settings:
    """The input, and the interval of the views."""

    interval_ns: int = SECOND_NS
    settle_ns: int = SECOND_NS // 4
    """Delay of a view after the end of its interval, because packets may be read late."""
    keep_ns: int = 10 * SECOND_NS
    """How long completed commands and closed connections are kept."""
    capture_filter: str | None = None
    packet_limit: int | None = None
    has_dynamics: bool = True
    """Whether the behaviour of the senders and the time breakdown are tracked."""
    clock_after_ns: int | None = 2 * SECOND_NS
    """After this long without packets the clock of the capture advances by itself."""
    buffer_bytes: int = 256 << 20
    """Bytes read ahead."""
    lag_max_ns: int | None = None
    """For a source that cannot wait: at this lag the dynamics are dropped, at twice this lag packets are skipped."""


@dataclass(frozen=True)
class Pace:
    """Lag behind the source, and measures against it."""

    lag_ns: int
    """Age of the oldest bytes that were read ahead and not analysed yet."""
    waiting_bytes: int
    is_reduced: bool
    """The dynamics were dropped: no time breakdown, no RTTs, no bytes in flight."""
    is_leaving_out: bool
    left_out_packets: int
    """So far."""


@dataclass(frozen=True)
class PassView:
    """One view of the pass, at the end of an interval."""

    from_ns: int
    to_ns: int
    trace: TraceTables
    """``cycles``: completed since the last view; ``budget``: of the interval; ``connections``, ``sessions``,
    ``senders`` and ``counters``: current state. ``parameters``: only at the end."""
    forgotten: TraceTables
    """``connections``: those whose rows were dropped, each once. Its inputs are those whose metadata was dropped."""
    turnaround_operation: NDArray[Any]
    turnaround_ns: NDArray[Any]
    """Status to the next command, at queue depth 1; for commands returned now or before."""
    now: list[dict[str, Any]]
    """The current iSCSI connections: ``connection session open_task_count``, and by direction ``owin_bytes
    owin_peak_bytes rwnd_bytes rtt_smoothed_ns`` where the dynamics are tracked."""
    late_count: int
    """Commands so far that were read too late for their queue depth to be exact."""
    settled_ns: int
    """Commands returned later begin at this time or after it."""


class Live:
    """A pass over a source that is still growing."""

    def __init__(self, source: Source, settings: Settings | None = None, *, name: str | None = None) -> None:
        """Starts to read ahead in a thread; a growing file is followed. ``name`` is the source's name in messages.

        Raises CaptureUnreadable if the file cannot be opened or the filter is invalid.
        """
        if _core_missing is not None:
            raise InputInvalid(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
        # it reads ahead in a thread for days
        _core.share_heap()
        self.settings = settings or Settings()
        named = os.fsdecode(source) if isinstance(source, os.PathLike) else source
        try:
            self._core = _core.Live(named, name=name, **vars(self.settings))
        except _core.CaptureError as error:
            raise CaptureUnreadable(str(error)) from error

    def advance(self, patience_s: float) -> str:
        """Reads for at most this long; returns ``look`` at the end of an interval, ``end``, or ``nothing``.

        Raises CaptureUnreadable if the input is no capture.
        """
        try:
            return self._core.advance(int(patience_s * SECOND_NS))
        except _core.CaptureError as error:
            raise CaptureUnreadable(str(error)) from error

    def look(self) -> PassView:
        """The view of the interval that has ended."""
        return self._view(self._core.look())

    def finish(self) -> PassView:
        """The last view, at the end of the source."""
        return self._view(self._core.finish())

    def recent(self) -> TraceTables:
        """The recent past: commands with and without status, and the other tables that a diagnosis needs."""
        return self._trace(self._core.recent())

    def stop(self, *, is_abrupt: bool = False) -> None:
        """Ends the pass after the data available now; ``is_abrupt``: after the data read so far."""
        self._core.stop(is_abrupt)

    @property
    def pace(self) -> Pace:
        """Lag behind the source."""
        return Pace(**self._core.pace)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """Properties of the captures so far."""
        return self._core.inputs

    @property
    def change(self) -> str | None:
        """``cut short`` or ``replaced``, if that ended a followed file."""
        return self._core.change

    @property
    def row_count(self) -> int:
        """Number of rows in memory."""
        return self._core.row_count

    def _trace(self, core_pass: _core.Pass) -> TraceTables:
        options = {
            "capture_filter": self.settings.capture_filter,
            "packet_limit": self.settings.packet_limit,
            "time_from_ns": None,
            "time_to_ns": None,
            "time_is_relative": False,
            "tables": [*DYNAMICS, "violations"],
        }
        return TraceTables(core_pass, options)

    def _view(self, found: dict[str, Any]) -> PassView:
        return PassView(
            from_ns=found["from_ns"],
            to_ns=found["to_ns"],
            trace=self._trace(found["pass"]),
            forgotten=self._trace(found["forgotten"]),
            turnaround_operation=np.asarray(found["turnaround_operation"]),
            turnaround_ns=np.asarray(found["turnaround_ns"]),
            now=found["now"],
            late_count=found["late_count"],
            settled_ns=found["settled_ns"],
        )
