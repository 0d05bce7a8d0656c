"""The marks of plots as arrays of int64 nanoseconds and values, and their decimation.

Arrays of one mark have the same length. Decimation keeps the first, the least, the greatest and the last value of each
pixel column. At that many columns a line through these four looks like the line through all values (Jugel, Jerzak,
Hackenbroich, Markl: M4, VLDB 2014). No extreme is lost, none is invented. Rows come in chunks, in the order of the
capture, and only the kept ones take memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _empty() -> Array:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Series:
    """A value over time, or single points: each value holds until the next one."""

    times_ns: Array = field(default_factory=_empty)
    values: Array = field(default_factory=_empty)

    def __len__(self) -> int:
        return len(self.times_ns)


@dataclass(frozen=True)
class Bars:
    """Vertical bars from one value to another at an instant."""

    times_ns: Array = field(default_factory=_empty)
    lows: Array = field(default_factory=_empty)
    highs: Array = field(default_factory=_empty)

    def __len__(self) -> int:
        return len(self.times_ns)


@dataclass(frozen=True)
class Spans:
    """Stretches of time."""

    starts_ns: Array = field(default_factory=_empty)
    ends_ns: Array = field(default_factory=_empty)

    def __len__(self) -> int:
        return len(self.starts_ns)


@dataclass(frozen=True)
class Label:
    """A text at one point of a plot."""

    time_ns: int
    value: int
    text: str


COLUMNS = 2000
"""Pixel columns of a decimated plot: more than a plot of the usual size has."""
LIMIT = 20_000
"""Rows up to which all are drawn."""
CHUNK_ROWS = 1 << 20
TOP = 8
"""More lines or bars are not told apart."""


@dataclass(frozen=True)
class Detail:
    """Level of detail: up to ``limit`` rows all of them, beyond that the extremes of each column."""

    limit: int = LIMIT
    columns: int = COLUMNS
    top: int = TOP
    """Connections, or sessions and connections, that are drawn each for itself; of more, those that lost most time."""
    by: str | None = None
    """What commands are told apart by, in plots that can: one of ``groups.TITLES``; None for what is usual."""

    def edges(self, row_count: int, start_ns: int, end_ns: int) -> Array | None:
        """The edges of the columns, the last instant included; None where all rows are drawn."""
        if row_count <= self.limit:
            return None
        return even_edges(start_ns, end_ns + 1, self.columns)


def even_edges(start_ns: int, end_ns: int, count: int) -> Array:
    """The edges of ``count`` equal bins, to the nanosecond; fewer bins for a shorter time."""
    length_ns = end_ns - start_ns
    # a float cannot hold nanoseconds since 1970 exactly
    return start_ns + np.linspace(0, length_ns, max(1, min(count, length_ns)) + 1).astype(np.int64)


def chunks(row_count: int) -> Iterator[slice]:
    """Slices of CHUNK_ROWS rows."""
    for begin in range(0, row_count, CHUNK_ROWS):
        yield slice(begin, min(begin + CHUNK_ROWS, row_count))


def _bounds(times_ns: Array, edges_ns: Array) -> list[int]:
    """The first row of each column; a time before its predecessor's stays in the same column."""
    bounds: list[int] = np.searchsorted(np.maximum.accumulate(times_ns), edges_ns).tolist()
    return bounds


def extremes(times_ns: Array, values: Array, edges_ns: Array) -> Array:
    """The rows of the first, least, greatest and last value in each column, in order; rows outside are left out."""
    kept: list[int] = []
    for begin, end in pairwise(_bounds(times_ns, edges_ns)):
        if end - begin <= 4:
            kept.extend(range(begin, end))
            continue
        part = values[begin:end]
        kept += sorted({begin, begin + int(part.argmin()), begin + int(part.argmax()), end - 1})
    return np.array(kept, dtype=np.intp)


def join(bars: Bars, edges_ns: Array) -> Bars:
    """One bar per column, from the lowest to the highest of its bars, at the time of its first."""
    kept, lows, highs = [], [], []
    for begin, end in pairwise(_bounds(bars.times_ns, edges_ns)):
        if begin < end:
            kept.append(begin)
            lows.append(bars.lows[begin:end].min())
            highs.append(bars.highs[begin:end].max())
    return Bars(bars.times_ns[kept], np.array(lows, dtype=np.int64), np.array(highs, dtype=np.int64))


class SeriesMaker:
    """A series from rows that come in chunks: those of the view, and the value at its start."""

    def __init__(self, start_ns: int, end_ns: int, edges_ns: Array | None) -> None:
        self._start_ns, self._end_ns, self._edges_ns = start_ns, end_ns, edges_ns
        self._before: tuple[int, int] | None = None
        self._parts: list[Series] = []

    def add(self, times_ns: Array, values: Array) -> None:
        """Adds the next rows."""
        is_before = times_ns < self._start_ns
        if not self._parts and is_before.any():
            last = len(is_before) - 1 - int(is_before[::-1].argmax())
            self._before = (self._start_ns, int(values[last]))
        is_inside = ~is_before & (times_ns <= self._end_ns)
        if not is_inside.any():
            return
        if not is_inside.all():
            times_ns, values = times_ns[is_inside], values[is_inside]
        self._parts.append(self._thinned(times_ns, values))

    def _thinned(self, times_ns: Array, values: Array) -> Series:
        if self._edges_ns is None:
            return Series(times_ns.astype(np.int64), values.astype(np.int64))
        kept = extremes(times_ns, values, self._edges_ns)
        return Series(times_ns[kept].astype(np.int64), values[kept].astype(np.int64))

    def points(self) -> Series:
        """The kept rows of the view."""
        if not self._parts:
            return Series()
        times_ns = np.concatenate([part.times_ns for part in self._parts])
        return self._thinned(times_ns, np.concatenate([part.values for part in self._parts]))

    def line(self) -> Series:
        """The same, starting with the value from before the view and held until its end."""
        points = self.points()
        times_ns, values = points.times_ns, points.values
        if self._before is not None:
            times_ns = np.concatenate([[self._before[0]], times_ns])
            values = np.concatenate([[self._before[1]], values])
        if len(times_ns):
            times_ns, values = np.append(times_ns, max(self._end_ns, int(times_ns[-1]))), np.append(values, values[-1])
        return Series(times_ns, values)


class BarsMaker:
    """Bars from rows of the view that come in chunks."""

    def __init__(self, edges_ns: Array | None) -> None:
        self._edges_ns = edges_ns
        self._parts: list[Bars] = []

    def add(self, times_ns: Array, lows: Array, highs: Array) -> None:
        """Adds the next rows."""
        if len(times_ns):
            bars = Bars(times_ns.astype(np.int64), lows.astype(np.int64), highs.astype(np.int64))
            self._parts.append(bars if self._edges_ns is None else join(bars, self._edges_ns))

    def bars(self) -> Bars:
        """The kept bars."""
        if not self._parts:
            return Bars()
        parts = zip(*((part.times_ns, part.lows, part.highs) for part in self._parts), strict=True)
        bars = Bars(*(np.concatenate(columns) for columns in parts))
        return bars if self._edges_ns is None else join(bars, self._edges_ns)
