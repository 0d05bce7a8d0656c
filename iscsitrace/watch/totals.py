"""The figures of ``summary`` for a live trace: the same keys, from cycles that come in parts.

Counts, bytes, I/O sizes, queue depths and active time are exact; percentiles of latency and phases are as
:mod:`iscsitrace.watch.distribution` says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import throughput
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.distribution import NO_VALUES, PERCENTILES, named, rank
from iscsitrace.measure.throughput import NANOSECONDS, Throughput
from iscsitrace.measure.waits import Waits
from iscsitrace.tables import coverage
from iscsitrace.tables.coverage import Coverage
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.phases import LATENCY_PHASES
from iscsitrace.tables.table import Table
from iscsitrace.watch.distribution import EXACT, Distribution

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

Array = NDArray[Any]


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
