"""Tables to files: one CSV or Parquet file per table in a directory.

Never overwrites a file unless told to, and looks at all of them before it writes the first. The same trace gives the
same bytes. CSV stands in csv_writer.py; Parquet is written by pyarrow (extra ``parquet``), also in bounded memory: the
rows that can no longer change leave after each capture of a ring, in that order. Tables on TCP and time are made of
whole connections, and stay in memory to the end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

import iscsitrace
from iscsitrace import findings
from iscsitrace.errors import CaptureUnreadable, ExtraMissing, InputInvalid
from iscsitrace.events import derived
from iscsitrace.fleet import periods
from iscsitrace.show import files
from iscsitrace.show.csv_writer import write_csv
from iscsitrace.tables.passes import Period, RingPass
from iscsitrace.tables.schema import (
    DATASET_TABLES,
    DEFAULT_TABLES,
    DERIVED_TABLES,
    ON_REQUEST,
    SCHEMA_VERSION,
    TABLES,
    TAPPED_TABLES,
)
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables

FORMATS = ("csv", "parquet")
_NEEDED: Final = {"findings": findings.NEEDED, "time_breakdown": ("budget", "cycles")}
"""The tables of a dataset that are computed from others, and what they need of the pass."""
EXPORTED: Final = (*TABLES, *DERIVED_TABLES, *TAPPED_TABLES, *_NEEDED)
"""Every table that can be exported."""


def export(
    trace: TraceTables,
    directory: str | os.PathLike[str],
    format: str = "csv",  # noqa: A002 -- the option's name
    tables: Iterable[str] = DEFAULT_TABLES,
    force: bool = False,
    *,
    is_neutral: bool = False,
) -> list[Path]:
    """Writes tables into a directory, made when missing, as ``NAME.csv`` or ``NAME.parquet``; returns the paths.

    ``is_neutral``: no text of a CSV file controls a terminal or is a formula of a spreadsheet (csv_writer.neutral).

    Raises OutputExists when a file is there and ``force`` is not given, InputInvalid for an unknown table or format
    or a directory that cannot be written, ExtraMissing when Parquet is requested without pyarrow.
    """
    chosen = list(dict.fromkeys(tables))
    parts = [_table(trace, name) for name in chosen]
    paths = check(directory, format, chosen, force, [each["name"] for each in trace.inputs])
    with files.folder(Path(directory)):
        for table, path in zip(parts, paths, strict=True):
            with files.written_aside(path) as partial, partial.open("wb") as stream:
                if format == "csv":
                    write_csv(table, stream, is_neutral=is_neutral)
                else:
                    _write_parquet(table, stream, trace)
    return paths


def of_pass(names: Iterable[str]) -> list[str]:
    """The tables of the pass that these tables are, or are computed from."""
    return list(dict.fromkeys(each for name in names for each in _NEEDED.get(name) or derived.of_pass([name])))


def _table(trace: TraceTables, name: str) -> Table:
    """A table of the trace; those of a dataset are of the whole trace as one period."""
    if name not in _NEEDED:
        return derived.table(trace, name)
    last_ns = max((each["time_last_ns"] or 0 for each in trace.inputs), default=0)
    first_ns = trace.first_packet[0] if trace.first_packet else last_ns
    whole = Period(first_ns, last_ns, trace, np.arange(len(trace.cycles)))
    return trace.kept(name, lambda _: periods.tables_of(whole, [name])[name])


def check(
    directory: str | os.PathLike[str],
    format: str,  # noqa: A002 -- the option's name
    tables: Iterable[str],
    force: bool,
    inputs: Iterable[str] = (),
) -> list[Path]:
    """The paths that :func:`export` will write; raises what it raises, and makes nothing."""
    if format not in FORMATS:
        raise InputInvalid(f"no format is called {format}; there are {', '.join(FORMATS)}")
    if not os.fspath(directory):
        raise InputInvalid("the directory to write to has no name")
    if format == "parquet":
        _require_parquet()
    paths = [Path(directory) / f"{name}.{format}" for name in tables]
    files.check_folder(Path(directory), paths, is_forced=force, inputs=inputs)
    return paths


def _require_parquet() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ExtraMissing("Parquet", "pyarrow", "parquet") from error


def _write_parquet(table: Table, stream: BinaryIO, trace: TraceTables) -> None:
    from pyarrow import parquet

    made_by = described(table.name, json.dumps(trace.provenance, sort_keys=True))
    parquet.write_table(table.to_arrow().replace_schema_metadata(made_by), stream, compression="zstd")


def described(name: str, provenance: str) -> dict[str, str]:
    """The metadata of a Parquet file of this table."""
    return {
        "iscsitrace.schema": str(SCHEMA_VERSION),
        "iscsitrace.table": name,
        "iscsitrace.row": (TABLES | DERIVED_TABLES | TAPPED_TABLES | DATASET_TABLES)[name].row,
        "iscsitrace.provenance": provenance,
    }


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
    paths = check(directory, "parquet", chosen, force, names)
    ring = RingPass(tables=["pdus"] if "pdus" in chosen else [])
    made_by = {
        "schema": SCHEMA_VERSION,
        "tool": {"name": "iscsitrace", "version": iscsitrace.__version__},
        "input": [{"name": name} for name in names],
    }
    with ExitStack() as stack:
        stack.enter_context(files.folder(Path(directory)))
        writers = {}
        for name, path in zip(chosen, paths, strict=True):
            stream = stack.enter_context(stack.enter_context(files.written_aside(path)).open("wb"))
            writers[name] = stack.enter_context(_RowFile(name, stream, json.dumps(made_by, sort_keys=True)))
        failures, place = [], _Position(names, watch)
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


def _add(writers: Mapping[str, _RowFile], tables: Mapping[str, Table]) -> None:
    for name, table in tables.items():
        if name in writers:
            writers[name].add(table)


class _Position:
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


class _RowFile:
    """One file of rows, in row groups as they come."""

    def __init__(self, name: str, stream: BinaryIO, made_by: str) -> None:
        self.count = 0
        self._name, self._stream, self._made_by = name, stream, made_by
        self._writer: Any = None

    def __enter__(self) -> _RowFile:
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
