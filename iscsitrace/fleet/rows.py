"""Rows of tables to Parquet files in a staging folder, by table and day; and the capture in which each begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from iscsitrace.tables.schema import DATASET_TABLES, SCHEMA_VERSION, TABLES
from iscsitrace.tables.table import Array, Table

DAY_NS: Final = 86_400 * 1_000_000_000
DECLARED: Final = TABLES | DATASET_TABLES
"""The tables that a dataset can have, by name."""
_UNKNOWN: Final = np.iinfo(np.int64).min
_FRAMES: Final = ("command_frame", "frame_first", "first_frame", "frame", "r2t_frame", "request_frame")
_FRAMES_ELSE: Final = ("data_first_frame", "response_frame")
_TIMES: Final = ("command_first_ns", "time_first_ns", "time_ns", "r2t_ns", "request_ns")
_TIMES_ELSE: Final = ("data_first_ns", "response_ns")
"""The columns of a row's first frame and first time, and of the last ones the substitutes where they are null."""


def columns_of(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a table with a row's first frame, and its first time: none, one, or one with its substitute."""
    present = {column.name for column in DECLARED[name].columns}
    return _present(_FRAMES, _FRAMES_ELSE, present), _present(_TIMES, _TIMES_ELSE, present)


def _present(first: tuple[str, ...], second: tuple[str, ...], present: set[str]) -> tuple[str, ...]:
    found = [each for each in first if each in present][:1]
    # only a PDU that may be missing from the capture has a substitute
    if found and found[0] in first[-len(second) :]:
        found += [
            substitute for each, substitute in zip(first[-len(second) :], second, strict=True) if each == found[0]
        ]
    return tuple(found)


@dataclass(frozen=True)
class CaptureOrder:
    """The captures of a tap in order, those without packets left out."""

    names: tuple[str, ...]
    first_frames: Array
    times_first_ns: Array

    def place(self, tables: Mapping[str, Table]) -> dict[str, tuple[Array, Array]]:
        """Of each table the day of each row, in days since 1970, and the position of its capture.

        A row without a frame is where its connection, or its session's first connection, is; where that is unknown, by
        its time; without a time, at the last capture. A row without a time is on the day of its capture's first packet.
        """
        homes = _homes(tables)
        return {name: self._place(name, table, homes) for name, table in tables.items()}

    def _place(self, name: str, table: Table, homes: Mapping[str, Array]) -> tuple[Array, Array]:
        frame_columns, time_columns = columns_of(name)
        frames, times = _first(table, frame_columns), _first(table, time_columns)
        for key in ("connection", "session", "cycle"):
            if not frame_columns and key in homes and key in table:
                frames = np.where(frames == _UNKNOWN, _looked_up(table, key, homes[key]), frames)
        captures = np.searchsorted(self.first_frames, frames, side="right") - 1
        is_placed = frames != _UNKNOWN
        if not is_placed.all():
            by_time = np.searchsorted(self.times_first_ns, times, side="right") - 1
            elsewhere = np.where(times != _UNKNOWN, by_time, len(self.names) - 1)
            captures = np.where(is_placed, captures, elsewhere)
        captures = captures.clip(min=0)
        if (times == _UNKNOWN).any():
            times = np.where(times != _UNKNOWN, times, self.times_first_ns[captures])
        days = times // DAY_NS
        return days, captures


def day_name(day: int) -> str:
    """``2026-11-23`` of days since 1970."""
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()


def _first(table: Table, columns: tuple[str, ...]) -> Array:
    """The first of these columns that is not null, in each row."""
    found = np.full(len(table), _UNKNOWN, dtype=np.int64)
    for column in columns:
        mask = table.mask(column)
        if mask is None and column == columns[0]:
            return table.raw(column).astype(np.int64)
        is_known = np.ones(len(table), dtype=bool) if mask is None else ~mask
        found = np.where((found == _UNKNOWN) & is_known, table.raw(column).astype(np.int64), found)
    return found


def _homes(tables: Mapping[str, Table]) -> dict[str, Array]:
    """The first frame of each connection, session and command of these tables, by number."""
    homes: dict[str, Array] = {}
    if "connections" in tables and len(tables["connections"]):
        table = tables["connections"]
        frames = table.raw("frame_first").astype(np.int64)
        homes["connection"] = _by_number(table.raw("connection"), frames)
        mask = table.mask("session")
        has_session = np.ones(len(table), dtype=bool) if mask is None else ~mask
        if has_session.any():
            homes["session"] = _by_number(table.raw("session")[has_session], frames[has_session])
    if "cycles" in tables and len(tables["cycles"]):
        homes["cycle"] = _by_number(
            tables["cycles"].raw("cycle"), tables["cycles"].raw("command_frame").astype(np.int64)
        )
    return homes


def _by_number(numbers: Array, frames: Array) -> Array:
    """Pairs of a number and its least frame, in order of numbers."""
    order = np.lexsort((frames, numbers))
    unique, first = np.unique(numbers[order].astype(np.int64), return_index=True)
    return np.stack((unique, frames[order][first]))


def _looked_up(table: Table, key: str, homes: Array) -> Array:
    mask = table.mask(key)
    numbers = table.raw(key).astype(np.int64)
    at = np.searchsorted(homes[0], numbers).clip(max=homes.shape[1] - 1)
    is_found = homes[0][at] == numbers
    if mask is not None:
        is_found &= ~mask
    return np.where(is_found, homes[1][at], _UNKNOWN)


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
