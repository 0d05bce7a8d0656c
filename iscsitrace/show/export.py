"""Tables to files: one CSV or Parquet file per table in a directory.

Never overwrites a file unless told to, and looks at all of them before it writes the first. The same trace gives the
same bytes. CSV stands in csv_writer.py; Parquet is written by pyarrow (extra ``parquet``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from iscsitrace.errors import ExtraMissing, InputInvalid
from iscsitrace.events import derived
from iscsitrace.show.csv_writer import write_csv
from iscsitrace.show.files import check, written_aside
from iscsitrace.tables.schema import DEFAULT_TABLES, DERIVED_TABLES, SCHEMA_VERSION, TABLES, TAPPED_TABLES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import Trace

FORMATS = ("csv", "parquet")


def export(
    trace: Trace,
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
    parts = [derived.table(trace, name) for name in chosen]
    paths = prepare(directory, format, chosen, force, [each["name"] for each in trace.inputs])
    for table, path in zip(parts, paths, strict=True):
        with written_aside(path) as partial, partial.open("wb") as stream:
            if format == "csv":
                write_csv(table, stream, is_neutral=is_neutral)
            else:
                _write_parquet(table, stream, trace)
    return paths


def prepare(
    directory: str | os.PathLike[str],
    format: str,  # noqa: A002 -- the option's name
    tables: Iterable[str],
    force: bool,
    inputs: Iterable[str] = (),
) -> list[Path]:
    """The paths that :func:`export` will write, in a directory that is made when missing; raises what it raises."""
    if format not in FORMATS:
        raise InputInvalid(f"no format is called {format}; there are {', '.join(FORMATS)}")
    if not os.fspath(directory):
        raise InputInvalid("the directory to write to has no name")
    if format == "parquet":
        _require_parquet()
    paths = [Path(directory) / f"{name}.{format}" for name in tables]
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputInvalid(f"cannot write to {directory}: {error.strerror or error}") from error
    for path in paths:
        check(path, is_forced=force, inputs=inputs)
    return paths


def _require_parquet() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ExtraMissing("Parquet", "pyarrow", "parquet") from error


def _write_parquet(table: Table, stream: BinaryIO, trace: Trace) -> None:
    from pyarrow import parquet

    made_by = described(table.name, json.dumps(trace.provenance, sort_keys=True))
    parquet.write_table(table.to_arrow().replace_schema_metadata(made_by), stream, compression="zstd")


def described(name: str, provenance: str) -> dict[str, str]:
    """The metadata of a Parquet file of this table."""
    return {
        "iscsitrace.schema": str(SCHEMA_VERSION),
        "iscsitrace.table": name,
        "iscsitrace.row": (TABLES | DERIVED_TABLES | TAPPED_TABLES)[name].row,
        "iscsitrace.provenance": provenance,
    }
