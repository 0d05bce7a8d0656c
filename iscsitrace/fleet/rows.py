"""Rows of tables to Parquet files by table and day, in a staging folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from iscsitrace.fleet.places import DECLARED, CaptureOrder, columns_of, day_name
from iscsitrace.tables.schema import SCHEMA_VERSION
from iscsitrace.tables.table import Table

CAPTURE: Final = "capture"
"""The column with the name of the capture that holds the first frame of a row."""
_BUFFERED_BYTES: Final = 16 << 20
"""Rows are gathered up to this size before a row group is written: many small ones take longer to read."""

_NUMBERS: Final = ("connection", "session", "cycle")


def arrow_schema(name: str) -> Any:
    """The columns of a table in the dataset, without its partitions."""
    return _with_capture(empty(name).to_arrow(), np.zeros(0, np.int64), ()).schema


def empty(name: str) -> Table:
    """A table without rows."""
    from iscsitrace.tables import phases
    from iscsitrace.tables.schema import CATEGORIES

    declaration = DECLARED[name]
    data: dict[str, Any] = {
        column.name: []
        if column.dtype == "str"
        else np.zeros(0, "uint8" if column.dtype.startswith("category:") else column.dtype)
        for column in declaration.columns
    }
    return Table(declaration, data, None, CATEGORIES, phases.DERIVED if name == "cycles" else None)


class RowFiles:
    """The files of one commit. Rows are of a kind: ``settled``, ``last`` or ``open`` (see store.py)."""

    def __init__(self, folder: Path, dataset: Path, tap: str, generation: int) -> None:
        self._folder, self._dataset, self._tap, self._generation = folder, dataset, tap, generation
        self._writers: dict[tuple[str, str, int], Any] = {}
        self._buffers: dict[tuple[str, str, int], list[Any]] = {}
        self._buffered_bytes = 0
        self.row_count = 0

    def add(self, kind: str, tables: Mapping[str, Table], timeline: CaptureOrder) -> None:
        """Rows of any tables."""
        filled = {name: table for name, table in tables.items() if len(table)}
        for name, (days, captures) in timeline.place(filled).items():
            table = filled[name]
            self.row_count += len(table)
            if days.min() == days.max():
                self._put((kind, name, int(days[0])), _with_capture(table.to_arrow(), captures, timeline.names))
                continue
            for day in np.unique(days).tolist():
                which = days == day
                rows = _with_capture(table.select(which).to_arrow(), captures[which], timeline.names)
                self._put((kind, name, day), rows)

    def add_arrow(self, kind: str, name: str, day: int, rows: Any) -> None:
        """Rows of one day, with all columns."""
        self._put((kind, name, day), rows)

    def _put(self, key: tuple[str, str, int], rows: Any) -> None:
        self._buffers.setdefault(key, []).append(rows)
        self._buffered_bytes += rows.nbytes
        if self._buffered_bytes > _BUFFERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        for key, parts in self._buffers.items():
            kind, name, day = key
            if key not in self._writers:
                path = self._folder / f"{kind}-{name}-{day}"
                self._writers[key] = _writer(path, name, _described(parts[0].schema, name))
            writer = self._writers[key]
            writer.write_table(_joined(parts).cast(writer.schema))
        self._buffers.clear()
        self._buffered_bytes = 0

    def close(self) -> dict[str, list[tuple[str, str]]]:
        """Of each kind the staged files and their places, relative to the dataset."""
        self._flush()
        found: dict[str, list[tuple[str, str]]] = {}
        for (kind, name, day), writer in self._writers.items():
            writer.close()
            place = f"{name}/tap={self._tap}/day={day_name(day)}/{self._generation:09}-{kind}.parquet"
            staged = self._folder / f"{kind}-{name}-{day}"
            found.setdefault(kind, []).append((str(staged.relative_to(self._dataset)), place))
        return found

    def abandon(self) -> None:
        """Close the files without an end: what they hold is never committed."""
        for writer in self._writers.values():
            writer.close()


def _writer(path: Path, name: str, schema: Any) -> Any:
    """Numbers as differences: most columns rise or repeat, and a dictionary of them takes twice the time and space.

    Snappy takes a sixth less time than zstd, for a tenth more space. Only columns that conditions on rows begin with
    have a least and a greatest value: they take time for each column.
    """
    from pyarrow import parquet, types

    return parquet.ParquetWriter(
        path,
        schema,
        compression="snappy",
        use_dictionary=[field.name for field in schema if not types.is_integer(field.type)],
        column_encoding={field.name: "DELTA_BINARY_PACKED" for field in schema if types.is_integer(field.type)},
        write_statistics=_ranged(name, schema.names),
    )


def _ranged(name: str, columns: Sequence[str]) -> list[str]:
    """The columns whose least and greatest value in each row group is kept: time, frame and numbers of subjects."""
    if name not in DECLARED:
        return list(columns)
    frames, times = columns_of(name)
    return [each for each in columns if each in (*frames, *times, *_NUMBERS)]


def _joined(parts: list[Any]) -> Any:
    import pyarrow

    return pyarrow.concat_tables(parts).unify_dictionaries() if len(parts) > 1 else parts[0]


def _described(schema: Any, name: str) -> Any:
    """The schema with the meaning of a row."""
    if name not in DECLARED:
        return schema.with_metadata({"iscsitrace.table": name})
    return schema.with_metadata(
        {"iscsitrace.schema": str(SCHEMA_VERSION), "iscsitrace.table": name, "iscsitrace.row": DECLARED[name].row}
    )


def _with_capture(rows: Any, captures: Any, names: tuple[str, ...]) -> Any:
    """Rows with the name of the capture of each; null where the capture was pruned."""
    import pyarrow

    used = np.flatnonzero(np.bincount(captures + 1)) - 1
    has_unknown = bool(len(used) and used[0] < 0)
    # the unknown is the first of them, and has no word
    words = [names[each] for each in used[has_unknown:].tolist()]
    code_of = np.zeros(len(names) + 1, np.int32)
    code_of[used + 1] = np.arange(len(used)) - has_unknown
    indices = pyarrow.array(code_of[captures + 1], mask=captures < 0 if has_unknown else None)
    column = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(words, pyarrow.string()))
    field = pyarrow.field(CAPTURE, column.type, metadata={"meaning": "the capture that holds its first frame"})
    return rows.append_column(field, column)
