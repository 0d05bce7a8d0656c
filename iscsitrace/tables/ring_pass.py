"""A pass over the captures of a ring that can be left between two of them, and continued from its state elsewhere.

It holds the captures read so far and reads them all at the end: exact, and not bounded.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from iscsitrace.tables.schema import ON_REQUEST, TABLES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import read

REQUESTED = ("pdus",)
"""The tables on request that a pass fills unless told otherwise."""


@dataclass(frozen=True)
class CaptureRead:
    """What was read of one capture."""

    first_frame: int
    """Number of its first frame in the ring, from 1."""
    info: dict[str, Any]
    """As in ``Trace.inputs``; the format is ``empty`` or ``unreadable`` if nothing was read."""


class RingPass:
    """A pass over captures in order of time, one by one."""

    def __init__(self, state: bytes | None = None, *, tables: Iterable[str] = REQUESTED) -> None:
        """Begins a pass, or continues one from what :meth:`state` gave.

        ``tables`` names those of schema.ON_REQUEST to fill; all others always are.
        """
        self._sources: list[bytes]
        self._sources, self._frames = pickle.loads(state) if state else ([], 0)  # noqa: S301 -- our own file
        self.requested = tuple(tables)

    def read(self, source: str | os.PathLike[str] | BinaryIO) -> CaptureRead:
        """Reads one capture to its end. Raises CaptureUnreadable, and the pass goes on."""
        content = Path(source).read_bytes() if isinstance(source, str | os.PathLike) else source.read()
        trace = read(BytesIO(content), tables=())
        self._sources.append(content)
        self._frames += trace.packet_count
        return CaptureRead(self._frames - trace.packet_count + 1, trace.inputs[0])

    def take(self) -> dict[str, Table]:
        """The rows that can no longer change, each once, by table."""
        return {}

    def state(self) -> bytes:
        """All that the pass knows but the rows that were taken."""
        return pickle.dumps((self._sources, self._frames))

    def finish(self) -> dict[str, Table]:
        """All other rows, by table; the pass is over."""
        if not self._sources:
            return {}
        trace = read(*map(BytesIO, self._sources), tables=self.requested)
        return {name: trace.table(name) for name in TABLES if name not in ON_REQUEST or name in self.requested}
