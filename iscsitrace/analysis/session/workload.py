"""What a session asks for, in one phrase: how many reads or writes of which size at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

MIXED = "block"
"""The word for neither reads nor writes alone."""

MOSTLY = 0.9


@dataclass(frozen=True)
class Workload:
    """Medians over the bytes that were moved: half of them went in blocks no larger, at a queue depth no higher.

    *Why:* over tasks, the many small reads of a device that is being looked at would hide the few large ones after it.
    """

    word: str
    """``read`` or ``write``, where nine tenths of the bytes are that, else ``block``."""
    block_bytes: int
    queue_depth: int
    task_count: int

    @property
    def phrase(self) -> str:
        """``one 128 KiB read at a time (queue depth 1) leaves the line idle``."""
        size = wording.size(self.block_bytes)
        if self.queue_depth == 1:
            return f"one {size} {self.word} at a time (queue depth 1) leaves the line idle"
        depth = self.queue_depth
        return f"{depth} {self.word}s of {size} at a time (queue depth {depth}) leave the line idle"


def of(cycles: Table) -> Workload | None:
    """The workload of these reads and writes; None where there are none."""
    if not len(cycles):
        return None
    sizes, moved = cycles.raw("bytes"), cycles.raw("data_bytes")
    is_read = float(np.average(cycles.raw("is_read"), weights=moved))
    word = "read" if is_read >= MOSTLY else "write" if is_read <= 1 - MOSTLY else MIXED
    return Workload(word, _median(sizes, moved), _median(cycles.raw("queue_depth"), moved), len(cycles))


def _median(values: NDArray[Any], weights: NDArray[Any]) -> int:
    """The least value that, with those below, has half of the weight."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order], dtype=np.int64)
    return int(values[order][np.searchsorted(reached, reached[-1] / 2)])
