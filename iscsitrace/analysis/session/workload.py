"""The workload of a session: reads or writes, I/O size and queue depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.table import Table

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
    if not len(cycles):
        return None
    sizes, moved = cycles.raw("bytes"), cycles.raw("data_bytes")
    whole = int(moved.sum(dtype=np.int64))
    is_read = int(moved[cycles.raw("is_read")].sum(dtype=np.int64)) / whole
    word = "read" if is_read >= MOSTLY else "write" if is_read <= 1 - MOSTLY else MIXED
    return Workload(word, _median(sizes, moved), _median(cycles.raw("queue_depth"), moved), len(cycles))


def _median(values: NDArray[Any], weights: NDArray[Any]) -> int:
    """The weighted median: the least value that has half of the weight with those below."""
    if (values == values[0]).all():
        # most workloads have one size, or one depth
        return int(values[0])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order], dtype=np.int64)
    return int(values[order][np.searchsorted(reached, reached[-1] / 2)])
