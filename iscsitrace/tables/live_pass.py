"""A pass that goes on, looked at now and then: what was complete since the last look, in bounded memory.

Beside ``trace``, the other module of this side that imports the core. Each cycle is handed over once; what is kept of
the recent past is for a diagnosis. It computes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables.trace import Trace

try:
    from iscsitrace import _core
except ImportError as error:  # a source tree without the compiled core; watching says so, all else works
    _core_missing: ImportError | None = error
else:
    _core_missing = None

SECOND_NS = 1_000_000_000
DYNAMICS = ("budget", "recoveries", "senders")
"""The tables on request that a live pass fills, unless it has to give them up."""

Source = str | os.PathLike[str] | bytes | IO[bytes]


@dataclass(frozen=True)
class Settings:
    """What is read, and how often it is looked at."""

    interval_ns: int = SECOND_NS
    settle_ns: int = SECOND_NS // 4
    """How long after its end an interval is looked at: what belongs to it may be read late."""
    keep_ns: int = 10 * SECOND_NS
    """How long what is over is kept."""
    capture_filter: str | None = None
    packet_limit: int | None = None
    has_dynamics: bool = True
    """Whether the senders' dynamics and the time budget are followed."""
    clock_after_ns: int | None = 2 * SECOND_NS
    """When nothing came for so long, the clock of the capture goes on by itself."""
    buffer_bytes: int = 256 << 20
    """Bytes read ahead."""
    lag_max_ns: int | None = None
    """For a source that cannot wait: this far behind the dynamics are given up, twice as far packets are left out."""


@dataclass(frozen=True)
class Pace:
    """How well it keeps up with its source."""

    lag_ns: int
    """How long the oldest bytes that were not looked at have been there."""
    waiting_bytes: int
    is_reduced: bool
    """The dynamics are given up: no time budget, no round trips, no outstanding data."""
    is_leaving_out: bool
    left_out_packets: int
    """So far."""


@dataclass(frozen=True)
class View:
    """One look."""

    from_ns: int
    to_ns: int
    trace: Trace
    """``cycles``: those that were complete since the last look; ``budget``: of the interval; ``connections``,
    ``sessions``, ``senders`` and ``counters``: as they stand. ``parameters`` at the end only."""
    forgotten: Trace
    """``connections``: those whose rows are no longer kept, each once."""
    turnaround_operation: NDArray[Any]
    turnaround_ns: NDArray[Any]
    """Status to the next command, where the queue depth was 1; of cycles handed over now or before."""
    now: list[dict[str, Any]]
    """The iSCSI connections of the moment: ``connection session open_task_count``, and by direction ``owin_bytes
    owin_peak_bytes rwnd_bytes rtt_smoothed_ns`` where the dynamics are followed."""
    late_count: int
    """Commands that were read too late for their queue depth, so far."""
    settled_ns: int
    """Cycles that are handed over later begin no earlier."""


class Live:
    """A source that has no end yet."""

    def __init__(self, source: Source, settings: Settings | None = None, *, name: str | None = None) -> None:
        """Starts to read ahead, in a thread; a path is followed as it grows. ``name`` is what messages call it.

        Raises CaptureUnreadable when the file cannot be opened or the filter is no filter.
        """
        if _core_missing is not None:
            raise InputInvalid(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
        self.settings = settings or Settings()
        named = os.fsdecode(source) if isinstance(source, os.PathLike) else source
        try:
            self._core = _core.Live(named, name=name, **vars(self.settings))
        except _core.CaptureError as error:
            raise CaptureUnreadable(str(error)) from error

    def advance(self, patience_s: float) -> str:
        """Reads on, for at most so long: ``look`` when an interval is over, ``end``, or ``nothing``.

        Raises CaptureUnreadable when the input is no capture.
        """
        try:
            return self._core.advance(int(patience_s * SECOND_NS))
        except _core.CaptureError as error:
            raise CaptureUnreadable(str(error)) from error

    def look(self) -> View:
        """The interval that is over."""
        return self._view(self._core.look())

    def finish(self) -> View:
        """What is left, at the end."""
        return self._view(self._core.finish())

    def recent(self) -> Trace:
        """The recent past: tasks with and without status, and what a diagnosis needs beside them."""
        return self._trace(self._core.recent())

    def stop(self, *, is_abrupt: bool = False) -> None:
        """What is there now is the end; ``is_abrupt``: what was read by now, for the source may never end."""
        self._core.stop(is_abrupt)

    @property
    def pace(self) -> Pace:
        """How well it keeps up."""
        return Pace(**self._core.pace)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """What the captures say of themselves so far."""
        return self._core.inputs

    @property
    def change(self) -> str | None:
        """``cut short`` or ``replaced``, when that ended a file that was followed."""
        return self._core.change

    @property
    def row_count(self) -> int:
        """Rows that it holds."""
        return self._core.row_count

    def _trace(self, core_pass: _core.Pass) -> Trace:
        options = {
            "capture_filter": self.settings.capture_filter,
            "packet_limit": self.settings.packet_limit,
            "time_from_ns": None,
            "time_to_ns": None,
            "time_is_relative": False,
            "tables": list(DYNAMICS),
        }
        return Trace(core_pass, tuple(_core.OPERATIONS), options)

    def _view(self, found: dict[str, Any]) -> View:
        return View(
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
