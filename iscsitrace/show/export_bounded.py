"""Tables to Parquet in bounded memory: the rows that can no longer change leave after each capture of a ring.

Their order is that in which they leave. Only tables on iSCSI: those on TCP and time are made of whole connections, and
stay in memory to the end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

import iscsitrace
from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.show.export import described, prepare
from iscsitrace.show.files import written_aside
from iscsitrace.tables.ring_pass import RingPass
from iscsitrace.tables.schema import ON_REQUEST, SCHEMA_VERSION, TABLES
from iscsitrace.tables.table import Table

BOUNDED: Final = tuple(name for name in TABLES if name not in ON_REQUEST or name == "pdus")
"""Tables whose rows leave before the end."""

_GROUP_ROWS: Final = 1 << 15
"""Rows that are made at once: with masks and computed columns they take three times the memory of those of the core."""

Watch = Callable[[int, int | None], None]


def export_bounded(
    sources: Iterable[str],
    directory: str | os.PathLike[str],
    tables: Iterable[str],
    force: bool = False,
    *,
    watch: Watch | None = None,
) -> dict[Path, int]:
    """Writes these of BOUNDED as ``NAME.parquet``; returns the rows of each file. The sources are in order of time.

    Raises what export.export raises, InputInvalid for other tables, CaptureUnreadable where no capture can be read.
    ``watch`` is called as ``progress`` of read, and after each capture: what it raises ends it, and leaves no file.
    """
    chosen, names = list(dict.fromkeys(tables)), list(sources)
    if other := [name for name in chosen if name not in BOUNDED]:
        raise InputInvalid(
            f"{', '.join(other)} cannot leave memory before the end: --max-memory has {', '.join(BOUNDED)}"
        )
    paths = prepare(directory, "parquet", chosen, force, names)
    ring = RingPass(tables=["pdus"] if "pdus" in chosen else [])
    made_by = {
        "schema": SCHEMA_VERSION,
        "tool": {"name": "iscsitrace", "version": iscsitrace.__version__},
        "input": [{"name": name} for name in names],
    }
    with ExitStack() as stack:
        writers = {}
        for name, path in zip(chosen, paths, strict=True):
            stream = stack.enter_context(stack.enter_context(written_aside(path)).open("wb"))
            writers[name] = stack.enter_context(_Rows(name, stream, json.dumps(made_by, sort_keys=True)))
        failures, place = [], _Place(names, watch)
        for name in names:
            try:
                ring.read(name, progress=place.reached)
            except CaptureUnreadable as error:
                failures.append(error)
            _add(writers, ring.take())
            place.next()
        if len(failures) == len(names):
            raise failures[0]
        _add(writers, ring.finish())
    return {path: writers[name].count for name, path in zip(chosen, paths, strict=True)}


def _add(writers: Mapping[str, _Rows], tables: Mapping[str, Table]) -> None:
    for name, table in tables.items():
        if name in writers:
            writers[name].add(table)


class _Place:
    """How much of all captures was read."""

    def __init__(self, names: Iterable[str], watch: Watch | None) -> None:
        self._sizes = [Path(name).stat().st_size if Path(name).is_file() else 0 for name in names]
        self._watch = watch
        self._number = 0

    def reached(self, bytes_done: int, _: int | None) -> None:
        """So many bytes of the current capture."""
        if self._watch is not None:
            self._watch(sum(self._sizes[: self._number]) + bytes_done, sum(self._sizes) or None)

    def next(self) -> None:
        """The current one was read."""
        self._number += 1
        self.reached(0, None)


class _Rows:
    """One file of rows, in row groups as they come."""

    def __init__(self, name: str, stream: BinaryIO, made_by: str) -> None:
        self.count = 0
        self._name, self._stream, self._made_by = name, stream, made_by
        self._writer: Any = None

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, table: Table) -> None:
        """Rows; without any the first call writes the columns."""
        from pyarrow import parquet

        if self._writer is None:
            schema = table.select(slice(0)).to_arrow().schema.with_metadata(described(self._name, self._made_by))
            self._writer = parquet.ParquetWriter(self._stream, schema, compression="zstd")
        for start in range(0, len(table), _GROUP_ROWS):
            rows = table.select(slice(start, start + _GROUP_ROWS)).to_arrow()
            self._writer.write_table(rows.cast(self._writer.schema))
            self.count += len(rows)
