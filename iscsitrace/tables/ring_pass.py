"""A pass over the captures of a ring that can be left between two of them, and continued from its state elsewhere.

Its rows are those of one pass over the whole ring, wherever captures end: the state is all that a pass knows there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables.schema import ON_REQUEST, TABLES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import Trace

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
    """As in ``Trace.inputs``; the format is ``empty`` or ``unreadable`` if nothing was read."""


class RingPass:
    """A pass over captures in order of time, one by one."""

    def __init__(self, state: bytes | None = None, *, tables: Iterable[str] = ("pdus",)) -> None:
        """Begins a pass, or continues one from what :meth:`state` gave; its tables are those that it began with.

        ``tables`` names those of schema.ON_REQUEST to fill; all others always are. Raises InputInvalid for an unknown
        table, or a state that is damaged or of another version.
        """
        if _core_missing is not None:
            raise InputInvalid(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
        self.requested = tuple(tables)
        for name in self.requested:
            if name not in ON_REQUEST:
                raise InputInvalid(f"unknown table on request {name}; there are {', '.join(ON_REQUEST)}")
        try:
            self._core = _core.Ring(tables=self.requested) if state is None else _core.Ring.from_state(state)
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
        """The rows that can no longer change, each once, by table."""
        return self._tables(self._core.take())

    def state(self) -> bytes:
        """All that the pass knows but the rows that were taken."""
        return self._core.state()

    def finish(self) -> dict[str, Table]:
        """All other rows, by table; the pass is over."""
        return self._tables(self._core.finish())

    def _tables(self, core_pass: _core.Pass) -> dict[str, Table]:
        trace = Trace(core_pass, tuple(_core.OPERATIONS), {"tables": list(self.requested)})
        return {name: trace.table(name) for name in TABLES if name not in ON_REQUEST or name in self.requested}
