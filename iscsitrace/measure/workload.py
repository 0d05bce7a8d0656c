"""The workload of a session: reads or writes, I/O size and queue depth; and all commands by SCSI operation: latency,
its phases, and I/O sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.distribution import counts, percentiles
from iscsitrace.measure.waits import Waits
from iscsitrace.tables.numbers import distinct
from iscsitrace.tables.phases import LATENCY_PHASES
from iscsitrace.tables.table import Array, Table
from iscsitrace.wording import amounts

MIN_TASKS: Final = 8
"""Least count of commands that show a pattern (I/O size, R2Ts, waits): fewer can be a start, or chance."""

MOST: Final = 0.5
"""Least share of commands for a statement about the whole session."""

MIXED = "block"
"""The word for a mix of reads and writes."""

MOSTLY = 0.9
"""Share of the bytes from which on a workload counts as reads, or writes, alone."""


@dataclass(frozen=True)
class Workload:
    """Medians weighted by bytes: half of the bytes moved in I/Os no larger, at a queue depth no deeper.

    *Why:* a median over commands would describe the many small reads that inspect a new device, not the few large ones
    that do the work. The queue depth is that of the tap (docs/method.md, section 3); `Conditions` has the initiator's.
    """

    word: str
    """``read`` or ``write`` where nine tenths of the bytes are that, else ``block``."""
    block_bytes: int
    queue_depth: int
    task_count: int


def of(cycles: Table) -> Workload | None:
    """The workload of these reads and writes; None where there are none."""
    return of_each(cycles, np.zeros(len(cycles), dtype=np.int64)).get(0)


class Workloads(Mapping[int, Workload]):
    """The workloads of several subjects, such as sessions, by number; one value each in every column."""

    def __init__(
        self, numbers: Array, words: Array, block_bytes: Array, queue_depths: Array, task_counts: Array
    ) -> None:
        self.numbers = numbers
        """Ascending."""
        self.words = words
        self.block_bytes = block_bytes
        self.queue_depths = queue_depths
        self.task_counts = task_counts

    def __getitem__(self, number: int) -> Workload:
        place = int(np.searchsorted(self.numbers, number))
        if place == len(self.numbers) or self.numbers[place] != number:
            raise KeyError(number)
        columns = (self.words, self.block_bytes, self.queue_depths, self.task_counts)
        return Workload(*(column[place].item() for column in columns))

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers.tolist())

    def __len__(self) -> int:
        return len(self.numbers)


def of_each(cycles: Table, numbers: NDArray[np.int64]) -> Workloads:
    """The workload of the reads and writes with each of these numbers, one per row, such as their session."""
    if not len(cycles):
        return Workloads(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
    if (numbers == numbers[0]).all():
        each, place = numbers[:1], np.zeros(len(numbers), dtype=np.int64)
    else:
        each, place = distinct(numbers)
    moved, is_read = cycles.raw("data_bytes").astype(np.int64), cycles.raw("is_read")
    whole = np.bincount(place, weights=moved)
    read = np.bincount(place[is_read], weights=moved[is_read], minlength=len(each)) / whole
    words = np.where(read >= MOSTLY, "read", np.where(read <= 1 - MOSTLY, "write", MIXED))
    sizes, depths = (_medians(cycles.raw(name), moved, place, len(each)) for name in ("bytes", "queue_depth"))
    return Workloads(each, words, sizes, depths, np.bincount(place))


def _medians(values: NDArray[Any], weights: NDArray[Any], place: NDArray[Any], count: int) -> NDArray[Any]:
    """The weighted median of each place: the least value that has half of the weight with those below."""
    if (values == values[0]).all():
        # most workloads have one size, or one depth
        return np.full(count, values[0])
    width = int(values.max()) + 1
    if width * count <= len(values):
        # counting is faster than sorting
        moved = np.bincount(place * width + values.astype(np.int64), weights=weights, minlength=width * count).reshape(
            count, width
        )
        reached = np.cumsum(moved, axis=1)
        return np.asarray((reached >= reached[:, -1:] / 2).argmax(axis=1))
    order = np.argsort(place << 32 | values.astype(np.int64), kind="stable")
    reached = np.cumsum(weights[order])
    ends = reached[np.cumsum(np.bincount(place, minlength=count)) - 1]
    starts = np.concatenate([[0], ends[:-1]])
    return np.asarray(values[order][np.searchsorted(reached, starts + (ends - starts) / 2)])


def by_operation(cycles: Table) -> Iterator[tuple[str, Table]]:
    """The cycles of each operation that occurs, the most frequent operation first."""
    return ((operation, part) for operation, part, _ in _operations(cycles))


def _operations(cycles: Table) -> Iterator[tuple[str, Table, NDArray[np.intp]]]:
    """The same, with their rows."""
    operation = cycles.raw("operation")
    count = np.bincount(operation)
    for code in np.argsort(-count, kind="stable")[: np.count_nonzero(count)].tolist():
        rows = np.flatnonzero(operation == code)
        part = cycles.select(rows)
        yield str(part["operation"][0] or "unknown"), part, rows


def latencies(cycles: Table, waited: Waits) -> list[dict[str, Any]]:
    """Per operation: number of commands, and ``n p50 p95 p99 max`` of latency and phases in nanoseconds.

    ``waited`` are the waits of the cycles: a command without a status ranks above all with one.
    """
    return [
        {
            "operation": operation,
            "cycle_count": len(part),
            "complete_cycle_count": int(part.raw("is_complete").sum()),
            "latency_ns": waited.select(rows).percentiles,
            **{phase: percentiles(part[phase]) for phase in (*LATENCY_PHASES, "ack_ns", "turnaround_ns")},
        }
        for operation, part, rows in _operations(cycles)
    ]


def without_status(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """For rows of :func:`latencies`: which percentiles are not of all commands."""
    for row in rows:
        found, noun = row["latency_ns"], f"{row['operation']} command"
        if of := amounts.part_of(found["n"], row["cycle_count"], f"{noun}s", "have no status"):
            yield f"Percentiles of {of}."
        if open_count := found.get("open_count"):
            rank = "ranks" if open_count == 1 else "rank"
            yield f"{amounts.count(open_count, noun)} without a status {rank} above all others: > is a lower bound."


def block_sizes(cycles: Table) -> list[dict[str, Any]]:
    """Per operation that moves data: number of commands of each I/O size (Expected Data Transfer Length)."""
    return [
        {"operation": operation, "bytes": size, "cycle_count": count}
        for operation, part in by_operation(cycles)
        for size, count in counts(part["bytes"]).items()
        if size
    ]


@dataclass(frozen=True)
class Sizes:
    """The I/O sizes of one operation: those with the most commands, and the sums of the others."""

    shown: list[Mapping[str, Any]]
    other_count: int
    other_cycle_count: int


def largest_counts(rows: Iterable[Mapping[str, Any]], limit: int) -> dict[str, Sizes]:
    """By operation, of rows of :func:`block_sizes`: the ``limit`` sizes with the most commands, then the smaller."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["operation"], []).append(row)
    found = {}
    for operation, each in by_name.items():
        ordered = sorted(each, key=lambda row: (-row["cycle_count"], row["bytes"]))
        rest = ordered[limit:]
        found[operation] = Sizes(ordered[:limit], len(rest), sum(row["cycle_count"] for row in rest))
    return found
