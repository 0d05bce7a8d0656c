"""One pass over the captures of a ring, which can be left between two captures and continued elsewhere.

It holds the captures read so far and reads them all at the end: exact, and not bounded.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Collection
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from iscsitrace.tables.schema import DEFAULT_TABLES, TABLES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import read


@dataclass(frozen=True)
class CaptureRead:
    """One capture as the pass read it."""

    first_frame: int
    """Number of its first frame, among all frames of the ring, from 1."""
    frame_count: int
    time_first_ns: int | None
    time_last_ns: int | None
    byte_count: int
    """Bytes of the file."""
    is_cut_short: bool = False
    """Whether the file ends within a packet, or its compression is damaged."""


class RingPass:
    """One pass over the captures of a ring, in order of time."""

    def __init__(self, state: bytes | None = None, *, tables: Collection[str] | None = None) -> None:
        """A new pass, or the one whose ``state`` this is; ``tables`` are those that are filled, by default those that
        ``export`` writes.
        """
        self._sources: list[bytes]
        self._sources, self._frames = pickle.loads(state) if state else ([], 0)  # noqa: S301 -- our own file
        self._tables = tuple(DEFAULT_TABLES if tables is None else tables)

    def read(self, path: str | os.PathLike[str] | BinaryIO, name: str) -> CaptureRead:
        """Reads one capture to its end; CaptureUnreadable leaves the pass as it was."""
        source = Path(path).read_bytes() if isinstance(path, str | os.PathLike) else path.read()
        trace = read(BytesIO(source), tables=())
        self._sources.append(source)
        count = trace.packet_count
        found = CaptureRead(
            self._frames + 1,
            count,
            trace.inputs[0]["time_first_ns"],
            trace.inputs[0]["time_last_ns"],
            len(source),
            bool(trace.inputs[0].get("is_cut_short")),
        )
        self._frames += count
        return found

    def take(self) -> dict[str, Table]:
        """Rows that can no longer change, each once."""
        return {}

    def state(self) -> bytes:
        """The state of the pass, to continue it."""
        return pickle.dumps((self._sources, self._frames))

    def finish(self) -> dict[str, Table]:
        """All other rows; the pass is over."""
        if not self._sources:
            return {}
        trace = read(*map(BytesIO, self._sources), tables=self._tables)
        return {name: trace.table(name) for name in TABLES if name in self._tables}
