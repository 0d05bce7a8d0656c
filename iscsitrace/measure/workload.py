"""The workload of a session: reads or writes, I/O size and queue depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.numbers import distinct
from iscsitrace.tables.table import Table

Array = NDArray[Any]

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
