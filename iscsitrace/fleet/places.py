"""The place of rows in the dataset: the day, and the capture that holds the first frame of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.schema import DATASET_TABLES, TABLES
from iscsitrace.tables.table import Table

Array = NDArray[Any]

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
