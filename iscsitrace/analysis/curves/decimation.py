"""Fewer marks for the same picture: per pixel column the first, the least, the greatest and the last value.

A line through these four looks, at that many columns, like the line through all of them (Jugel, Jerzak, Hackenbroich,
Markl: M4, VLDB 2014). No extreme is lost, none is invented. Rows come chunk by chunk, in the order of the capture, and
only what is kept takes memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from iscsitrace.analysis.curves.marks import Array, Bars, Line

COLUMNS = 2000
"""Pixel columns of a decimated plot: more than a plot of the usual size has."""
LIMIT = 20_000
"""Up to so many rows all are drawn."""
CHUNK_ROWS = 1 << 20


@dataclass(frozen=True)
class Detail:
    """How much of a trace is drawn: up to ``limit`` rows all of them, beyond it the extremes of each column."""

    limit: int = LIMIT
    columns: int = COLUMNS

    def edges(self, row_count: int, start_ns: int, end_ns: int) -> Array | None:
        """Where the columns begin and end, the last instant included; None when all rows are drawn."""
        if row_count <= self.limit:
            return None
        return even_edges(start_ns, end_ns + 1, self.columns)


def even_edges(start_ns: int, end_ns: int, count: int) -> Array:
    """Where so many bins begin and end that share a stretch of time evenly, to the nanosecond; of a short one fewer."""
    length_ns = end_ns - start_ns
    # nanoseconds since 1970 are more than a float can tell apart
    return start_ns + np.linspace(0, length_ns, max(1, min(count, length_ns)) + 1).astype(np.int64)


def chunks(row_count: int) -> Iterator[slice]:
    """Places of the rows, so many at a time."""
    for begin in range(0, row_count, CHUNK_ROWS):
        yield slice(begin, min(begin + CHUNK_ROWS, row_count))


def _bounds(times_ns: Array, edges_ns: Array) -> list[int]:
    """Where the rows of each column begin; a time before its predecessor's stays with its predecessor."""
    bounds: list[int] = np.searchsorted(np.maximum.accumulate(times_ns), edges_ns).tolist()
    return bounds


def extremes(times_ns: Array, values: Array, edges_ns: Array) -> Array:
    """Places of the first, least, greatest and last value in each column, in order; rows outside are left out."""
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


class LineMaker:
    """A line of rows that come chunk by chunk: those of the view, and the value with which the line enters it."""

    def __init__(self, start_ns: int, end_ns: int, edges_ns: Array | None) -> None:
        self._start_ns, self._end_ns, self._edges_ns = start_ns, end_ns, edges_ns
        self._before: tuple[int, int] | None = None
        self._parts: list[Line] = []

    def add(self, times_ns: Array, values: Array) -> None:
        """The next rows."""
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

    def _thinned(self, times_ns: Array, values: Array) -> Line:
        if self._edges_ns is None:
            return Line(times_ns.astype(np.int64), values.astype(np.int64))
        kept = extremes(times_ns, values, self._edges_ns)
        return Line(times_ns[kept].astype(np.int64), values[kept].astype(np.int64))

    def points(self) -> Line:
        """What is kept of the rows in the view."""
        if not self._parts:
            return Line()
        times_ns = np.concatenate([part.times_ns for part in self._parts])
        return self._thinned(times_ns, np.concatenate([part.values for part in self._parts]))

    def line(self) -> Line:
        """The same, begun with the value from before the view and held until its end."""
        points = self.points()
        times_ns, values = points.times_ns, points.values
        if self._before is not None:
            times_ns = np.concatenate([[self._before[0]], times_ns])
            values = np.concatenate([[self._before[1]], values])
        if len(times_ns):
            times_ns, values = np.append(times_ns, max(self._end_ns, int(times_ns[-1]))), np.append(values, values[-1])
        return Line(times_ns, values)


class BarsMaker:
    """Bars of rows in the view that come chunk by chunk."""

    def __init__(self, edges_ns: Array | None) -> None:
        self._edges_ns = edges_ns
        self._parts: list[Bars] = []

    def add(self, times_ns: Array, lows: Array, highs: Array) -> None:
        """The next rows."""
        if len(times_ns):
            bars = Bars(times_ns.astype(np.int64), lows.astype(np.int64), highs.astype(np.int64))
            self._parts.append(bars if self._edges_ns is None else join(bars, self._edges_ns))

    def bars(self) -> Bars:
        """What is kept of them."""
        if not self._parts:
            return Bars()
        parts = zip(*((part.times_ns, part.lows, part.highs) for part in self._parts), strict=True)
        bars = Bars(*(np.concatenate(columns) for columns in parts))
        return bars if self._edges_ns is None else join(bars, self._edges_ns)
