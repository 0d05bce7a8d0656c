"""The figures of ``summary`` for a live trace: the same keys, from cycles that come in parts, in bounded memory.

Counts, bytes, I/O sizes, queue depths and active time are exact. Up to EXACT values of a distribution, all are kept,
and percentiles are those of ``measure.distribution``. Beyond that, values are counted in classes 0.1 % wide (1024 per
doubling), and a percentile is the middle of its class: within 0.05 % of the value that occurred. Least and largest are
always exact.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import fields
from typing import Any

import numpy as np

from iscsitrace.measure import throughput, waits
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.distribution import NO_VALUES, named, percentiles, rank
from iscsitrace.measure.ranks import PERCENTILES
from iscsitrace.measure.throughput import NANOSECONDS, Throughput
from iscsitrace.measure.waits import Waits
from iscsitrace.tables import coverage
from iscsitrace.tables.coverage import Coverage
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.phases import LATENCY_PHASES
from iscsitrace.tables.table import Array, Table

EXACT = 1 << 16
"""Values that are kept one by one."""
CLASS_BITS = 10
_CLASSES = 1 << CLASS_BITS

_NONE = np.zeros(0, dtype=np.int64)


class Distribution:
    """Values, and percentiles of them."""

    def __init__(self, exact: int = EXACT) -> None:
        self.count = 0
        self.open_count = 0
        self._exact = exact
        self._parts: list[Array] = []
        self._counts: Array | None = None
        self._least = math.inf
        self._most = -math.inf
        # the largest lower bounds, ascending
        self._bounds: Array = _NONE
        self._named: dict[str, int | None] | None = None
        """The percentiles without commands in flight, until more values come."""

    def add(self, values: Array) -> None:
        """Adds int64 values; nulls of a masked array are left out."""
        known = values.compressed() if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        if not len(known):
            return
        self._named = None
        self._least = min(self._least, int(known.min()))
        self._most = max(self._most, int(known.max()))
        self.count += len(known)
        self._parts.append(known.astype(np.int64))
        self._compress()

    def add_bounds(self, values: Array) -> None:
        """Adds lower bounds of values that are above all others: commands that never got a status."""
        self._named = None
        self.open_count += len(values)
        self._bounds = np.sort(np.concatenate([self._bounds, values]))[-self._exact :]
        self._compress()

    def percentiles(self, in_flight: Array = _NONE) -> dict[str, int | None]:
        """``n p50 p95 p99 max`` by nearest rank; None where there are too few values.

        ``in_flight`` are bounds for now: those above all values count (:func:`waits.slowest`).
        """
        if len(in_flight):
            return self._percentiles(in_flight)
        if self._named is None:
            self._named = self._percentiles(in_flight)
        return self._named

    def _percentiles(self, in_flight: Array) -> dict[str, int | None]:
        bounds = waits.slowest(np.array([max(self._most, 0)]), self._bounds, in_flight)
        if self._counts is None:
            found = np.concatenate(self._parts) if self._parts else _NONE
            self._parts = [found] if len(found) else []
            return percentiles(found, bounds)
        open_count = self.open_count + len(bounds) - len(self._bounds)
        total, reached = self.count + open_count, np.cumsum(self._counts)

        def value(place: int) -> int:
            if place >= self.count:
                # of very many bounds the least are not kept
                return max(int(bounds[max(place - total, -len(bounds))]), int(self._most))
            if place == self.count - 1:
                return int(self._most)
            middle = _middle(int(np.searchsorted(reached, place, side="right")))
            return int(min(max(middle, self._least), self._most))

        named_values = named(total, [value(rank(total, percent)) for percent in PERCENTILES.values()])
        return named_values | {"open_count": open_count} if open_count else named_values

    def _compress(self) -> None:
        """Counts the values by class when there are many."""
        if self._counts is not None or (self.count and self.count + self.open_count > self._exact):
            values = np.concatenate(self._parts) if self._parts else _NONE
            self._parts.clear()
            self._counts = _NONE if self._counts is None else self._counts
            self._classify(values)

    def _classify(self, values: Array) -> None:
        classes = np.bincount(_classes(values)) if len(values) else _NONE
        held = self._counts if self._counts is not None else np.zeros(0, dtype=np.int64)
        if len(classes) > len(held):
            held = np.concatenate([held, np.zeros(len(classes) - len(held), dtype=np.int64)])
        held[: len(classes)] += classes
        self._counts = held


def _classes(values: Array) -> Array:
    """The class of each value: small values themselves, else the first eleven bits and the size."""
    positive = np.maximum(values, 0)
    # exact for values below 2^53
    _, bits = np.frexp(positive.astype(np.float64))
    shift = np.maximum(bits.astype(np.int64) - (CLASS_BITS + 1), 0)
    classes: Array = shift * _CLASSES + (positive >> shift)
    return classes


def _middle(number: int) -> int:
    shift = max(number // _CLASSES - 1, 0)
    first = (number - shift * _CLASSES) << shift
    return first + ((1 << shift) >> 1)


PENDING_MAX = 1 << 16
"""Disjoint stretches that are kept open for later intervals between them."""


class ActiveTime:
    """A sum of covered time, exact as long as no more than PENDING_MAX stretches are open."""

    def __init__(self) -> None:
        self._sealed_ns = 0
        self._sealed_until: int | None = None
        self._starts: Array = np.zeros(0, dtype=np.int64)
        self._ends: Array = np.zeros(0, dtype=np.int64)

    def add(self, starts: Array, ends: Array, settled_ns: int) -> None:
        """Adds intervals [start, end); later ones begin at ``settled_ns`` or after."""
        if self._sealed_until is not None:
            starts = np.maximum(starts, self._sealed_until)
        is_real = ends > starts
        self._starts, self._ends = _disjoint(
            np.concatenate([self._starts, starts[is_real]]), np.concatenate([self._ends, ends[is_real]])
        )
        if len(self._starts) > PENDING_MAX:
            settled_ns = max(settled_ns, int(self._starts[len(self._starts) // 2]))
        self._seal(settled_ns)

    @property
    def total_ns(self) -> int:
        """Covered time so far."""
        return self._sealed_ns + int((self._ends - self._starts).sum())

    def _seal(self, until_ns: int) -> None:
        if not len(self._starts) or self._starts[0] >= until_ns:
            return
        self._sealed_ns += int((np.minimum(self._ends, until_ns) - np.minimum(self._starts, until_ns)).sum())
        is_left = self._ends > until_ns
        self._starts, self._ends = np.maximum(self._starts[is_left], until_ns), self._ends[is_left]
        self._sealed_until = until_ns


def _disjoint(starts: Array, ends: Array) -> tuple[Array, Array]:
    """The same time as disjoint intervals in order."""
    if len(starts) < 2:
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reached = np.maximum.accumulate(ends)
    begins = np.concatenate([[True], starts[1:] > reached[:-1]])
    lasts = np.concatenate([np.flatnonzero(begins)[1:] - 1, [len(starts) - 1]])
    return starts[begins], reached[lasts]


PHASES = ("latency_ns", *LATENCY_PHASES, "ack_ns")
SIZES_MAX = 4096
"""I/O sizes of one operation that are counted one by one."""
_SUMS = (
    "cycle_count",
    "complete_cycle_count",
    "read_cycle_count",
    "write_cycle_count",
    "read_bytes",
    "write_bytes",
)


class _Operation:
    """The cycles of one operation."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.cycle_count = 0
        self.complete_cycle_count = 0
        self.phases: dict[str, Distribution] = defaultdict(Distribution)
        self.sizes: Counter[int] = Counter()
        self.other_sizes = 0
        self.cut_off_ns: Array = np.zeros(0, dtype=np.int64)

    def add(self, cycles: Table, waited: Waits) -> None:
        self.cycle_count += len(cycles)
        self.complete_cycle_count += int(cycles.raw("is_complete").sum())
        for phase in PHASES:
            self.phases[phase].add(cycles[phase])
        self.phases["latency_ns"].add_bounds(waited.lost_ns)
        # at the end of the capture, or before it where commands are incomplete for another reason
        self.cut_off_ns = np.sort(np.concatenate([self.cut_off_ns, waited.cut_off_ns]))[-EXACT:]
        size, mask = cycles.raw("bytes"), cycles.mask("bytes")
        sizes = size if mask is None else size[~mask]
        for each, count in zip(*np.unique(sizes[sizes > 0], return_counts=True), strict=True):
            if int(each) in self.sizes or len(self.sizes) < SIZES_MAX:
                self.sizes[int(each)] += int(count)
            else:
                self.other_sizes += int(count)

    def as_dict(self) -> dict[str, Any]:
        return {
            "operation": self.word,
            "cycle_count": self.cycle_count,
            "complete_cycle_count": self.complete_cycle_count,
            **{phase: self.phases[phase].percentiles() for phase in (*PHASES, "turnaround_ns")},
            "latency_ns": self.phases["latency_ns"].percentiles(self.cut_off_ns),
        }


class _Session:
    """The cycles of one session, or of all."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.io: Counter[str] = Counter()
        self.queue_depth_max = 0
        self.active = ActiveTime()

    def add(self, volume: Throughput, cycles: Table, ends_ns: Array, settled_ns: int) -> None:
        self.sums.update({name: getattr(volume, name) for name in _SUMS})
        self.queue_depth_max = max(self.queue_depth_max, volume.queue_depth_max or 0)
        is_io = is_data_command(cycles)
        own = cycles.select(is_io)
        read, written = throughput.payload(own)
        count = int(known(own, "status_ns").sum())
        self.io.update({"count": count, "read": int(read.sum()), "written": int(written.sum())})
        self.active.add(own.raw("command_first_ns"), ends_ns[is_io], settled_ns)

    def volume(self, number: int | None) -> Throughput:
        active_ns = self.active.total_ns

        def per_s(amount: int) -> float | None:
            return amount * NANOSECONDS / active_ns if active_ns else None

        sums = {name: self.sums[name] for name in _SUMS}
        return Throughput(
            session=number,
            **sums,
            active_ns=active_ns,
            iops=per_s(self.io["count"]),
            read_bytes_per_s=per_s(self.io["read"]),
            write_bytes_per_s=per_s(self.io["written"]),
            queue_depth_max=self.queue_depth_max if sums["cycle_count"] else None,
        )


class Totals:
    """Everything so far."""

    def __init__(self) -> None:
        self._operations: dict[int, _Operation] = {}
        self._sessions: dict[int, _Session] = defaultdict(_Session)
        self._all = _Session()
        self._depths: Counter[int] = Counter()
        self._forgotten: Counter[str] = Counter()
        self.forgotten_connections = 0
        self.forgotten_sessions = 0

    @property
    def all(self) -> Throughput:
        """All cycles so far."""
        return self._all.volume(None)

    def add(self, cycles: Table, waited: Waits, settled_ns: int) -> None:
        """Adds cycles, each of which comes once, with their waits; later ones begin at ``settled_ns`` or after."""
        codes = cycles.raw("operation")
        for code in np.unique(codes).tolist():
            own = codes == code
            self._operation(code, cycles).add(cycles.select(own), waited.select(own))
        *of_sessions, whole = throughput.measure(cycles, waited)
        rows, ends_ns = grouped(cycles.raw("session")), waited.ends_ns(cycles)
        for volume in of_sessions:
            if volume.session is not None:
                own = rows[volume.session]
                self._sessions[volume.session].add(volume, cycles.select(own), ends_ns[own], settled_ns)
        self._all.add(whole, cycles, ends_ns, settled_ns)
        depths, counts = np.unique(cycles.raw("queue_depth"), return_counts=True)
        self._depths.update(dict(zip(depths.tolist(), counts.tolist(), strict=True)))

    def add_turnarounds(self, cycles: Table, operation: Array, turnaround_ns: Array) -> None:
        """Adds times from a status to the next command, by operation code; ``cycles`` has the words."""
        for code in np.unique(operation).tolist():
            self._operation(code, cycles).phases["turnaround_ns"].add(turnaround_ns[operation == code])

    def forget(self, connections: Table) -> None:
        """Adds the totals of connections whose rows are no longer kept."""
        self.forgotten_connections += len(connections)
        total = coverage.measure(connections)[-1]
        self._forgotten.update({field.name: getattr(total, field.name) for field in _COVERAGE_COUNTS})

    def forget_sessions(self, kept: set[int]) -> None:
        """Keeps the figures of these sessions; those of others stay in the total alone."""
        gone = self._sessions.keys() - kept
        self.forgotten_sessions += len(gone)
        for number in gone:
            del self._sessions[number]

    def document(self) -> dict[str, Any]:
        """``volumes``, ``queue_depth``, ``block_sizes`` and ``latency`` as ``summary --json`` has them."""
        operations = [self._operations[code] for code in sorted(self._operations)]
        operations = [operation for operation in operations if operation.cycle_count]
        operations.sort(key=lambda operation: operation.cycle_count, reverse=True)
        numbers = sorted(number for number, session in self._sessions.items() if session.sums["cycle_count"])
        return {
            "volumes": [
                *(self._sessions[number].volume(number).as_dict() for number in numbers),
                self._all.volume(None).as_dict(),
            ],
            "queue_depth": self._queue_depth(),
            "block_sizes": [
                {"operation": operation.word, "bytes": size, "cycle_count": count}
                for operation in operations
                for size, count in (
                    *sorted(operation.sizes.items()),
                    *([(None, operation.other_sizes)] if operation.other_sizes else []),
                )
            ],
            "latency": [operation.as_dict() for operation in operations],
        }

    def coverage(self, connections: Table) -> list[Coverage]:
        """The coverage of the connections that are kept, and the total of all so far."""
        *parts, total = coverage.measure(connections)
        sums = {field.name: getattr(total, field.name) + self._forgotten[field.name] for field in _COVERAGE_COUNTS}
        return [*parts, Coverage(None, None, **sums)]

    def _queue_depth(self) -> dict[str, Any]:
        depths = sorted(self._depths)
        count = self._depths.total()
        found = NO_VALUES
        if count:
            reached = np.cumsum([self._depths[depth] for depth in depths])
            places = [rank(count, percent) for percent in PERCENTILES.values()]
            picked = [depths[place] for place in np.searchsorted(reached, places, side="right").tolist()]
            found = named(count, picked)
        return {**found, "cycles_by_queue_depth": {depth: self._depths[depth] for depth in depths}}

    def _operation(self, code: int, cycles: Table) -> _Operation:
        if code not in self._operations:
            self._operations[code] = _Operation(str(cycles.words_by_code("operation")[code] or "unknown"))
        return self._operations[code]


_COVERAGE_COUNTS = tuple(field for field in fields(Coverage) if field.name not in {"connection", "direction"})
