"""The commands of a session as spans of time: each span is one cycle of the model.

- One command at a time: a span lasts from a command to the next.
- Commands issued at once, in the same pattern again and again (the pieces of a system call), share their delays: they
  are one cycle, and their sizes add up.
- Commands that keep a queue full: a span lasts from a command to the one that took its place in the queue, as many
  commands later as the queue is deep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from iscsitrace.measure.system_calls import is_at_once
from iscsitrace.model.setting import OPERATIONS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Array, Table

TOGETHER: Final = 0.5
"""Share of the bytes moved at queue depth 2 or more that groups of one pattern need to have to be cycles."""
FULL_QUEUE: Final = 0.9
"""Share of the commands whose queue depth is no deeper than the one that the queue is kept at."""
PROMPT: Final = 0.75
"""Share of the least RTT to the initiator after which a command may follow from a status."""
_NO_END: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class CycleSpans:
    """Cycles of one kind, in order of time."""

    operation: str
    block_bytes: int
    """Of one cycle: of its command, or of all commands that were issued together."""
    together: int
    """Commands that were issued together; 1 for all others."""
    queue_depth: int
    first: Array
    """Row of the first command of each span."""
    last: Array
    """Row after its last command."""
    starts: Array
    ends: Array
    """The largest integer where no command followed."""

    @property
    def has_end(self) -> Array:
        """Which spans have a period: none where the clock of the capture stood still."""
        return np.asarray((self.ends != _NO_END) & (self.ends > self.starts))

    @property
    def tasks_in_each(self) -> int:
        """Commands in a span."""
        return self.together * self.queue_depth

    def where(self, which: Array) -> CycleSpans:
        """The spans that a boolean mask picks."""
        rows = (self.first[which], self.last[which], self.starts[which], self.ends[which])
        return CycleSpans(self.operation, self.block_bytes, self.together, self.queue_depth, *rows)


class Commands:
    """The commands of one session in order of time."""

    def __init__(self, cycles: Table, answer_ns: float = 0) -> None:
        """``answer_ns`` is the RTT between tap and initiator: no command follows from a status sooner."""
        self._prompt_ns = np.int64(PROMPT * answer_ns)
        starts = cycles.raw("command_first_ns")
        is_in_order = bool((starts[1:] >= starts[:-1]).all())
        self.table = cycles if is_in_order else cycles.select(np.argsort(starts, kind="stable"))
        self.starts = self.table.raw("command_first_ns")
        words = self.table.words("operation")
        codes = [words.index(word) if word in words else -1 for word in OPERATIONS]
        code = self.table.raw("operation").astype(np.int64)
        self.bytes = np.where(known(self.table, "bytes"), self.table.raw("bytes"), 0).astype(np.int64)
        self.operation = np.select([code == each for each in codes], range(len(codes)), -1)
        self.operation[self.bytes == 0] = -1
        """Place in OPERATIONS; -1 for commands that move no data."""

    def __len__(self) -> int:
        return len(self.table)

    def is_of(self, operation: str) -> Array:
        """Which commands read, or write, data."""
        return np.asarray(self.operation == OPERATIONS.index(operation))

    @cached_property
    def depth(self) -> Array:
        """Commands in flight for the initiator when each was issued, itself included: those whose status it has not
        received yet (docs/method.md, section 6).

        A command whose status was never captured does not count: it would stay in flight forever.
        """
        ended = np.searchsorted(self._ends, self.starts, side="right")
        begun: Array = np.cumsum(self._has_status) - self._has_status
        return np.asarray(np.maximum(begun - ended, 0) + 1)

    @cached_property
    def depth_in_full(self) -> Array:
        """Commands in flight for the initiator when the next of them ended, after each was issued.

        *Why:* commands that a program issues together, as after several statuses that came together, go one after the
        other, and all but the last are issued below the depth that the program keeps.
        """
        ended = np.searchsorted(self._ends, self.starts, side="right")
        next_end = np.append(self._ends, _NO_END)[ended]
        begun = np.searchsorted(self.starts[self._has_status], next_end)
        return np.asarray(np.maximum(begun - ended, 1))

    @cached_property
    def _has_status(self) -> Array:
        return known(self.table, "status_ns")

    @cached_property
    def _ends(self) -> Array:
        """When the initiator received the statuses, in order of time."""
        # at the tap the status is still on its way to the initiator, and the next command has already traveled
        done = self.table.raw("status_ns") + self._prompt_ns
        is_acked = self._has_status & self.table.raw("is_status_in_data") & known(self.table, "data_acked_ns")
        done[is_acked] = np.maximum(done, self.table.raw("data_acked_ns"))[is_acked]
        return np.sort(done[self._has_status])

    @cached_property
    def group(self) -> Array:
        """Number of the busy stretch, in which commands were in flight without a break."""
        return np.cumsum(self.depth == 1)

    def spans(self) -> Iterator[CycleSpans]:
        """All kinds of cycles in the session."""
        if not len(self):
            return
        firsts = np.flatnonzero(np.diff(self.group, prepend=-1))
        lasts = np.append(firsts[1:], len(self))
        ends = np.append(self.starts[firsts[1:]], _NO_END)
        sums = np.add.reduceat(self.bytes, firsts)
        least, most = np.minimum.reduceat(self.operation, firsts), np.maximum.reduceat(self.operation, firsts)
        is_one_kind = (least == most) & (least >= 0)
        counts = lasts - firsts
        for place, operation in enumerate(OPERATIONS):
            is_own = is_one_kind & (least == place)
            queued = is_own & (counts > 1)
            at_once = queued & is_at_once(self.table, firsts)
            kinds = Counter[tuple[int, int]]()
            for count, size in zip(counts[at_once].tolist(), sums[at_once].tolist(), strict=True):
                kinds[count, size] += size
            together = kinds.most_common(1)[0][0] if kinds else None
            if together and (kinds[together] < TOGETHER * sums[queued].sum() or kinds[together] < 3 * together[1]):
                together = None
            is_together = at_once & (counts == together[0]) & (sums == together[1]) if together else queued & False
            alone = is_own & (counts == 1)
            for is_kind, count, size in (
                *((alone & (sums == size), 1, size) for size in np.unique(sums[alone]).tolist()),
                *(((is_together, *together),) if together else ()),
            ):
                rows = (firsts[is_kind], lasts[is_kind], self.starts[firsts[is_kind]], ends[is_kind])
                yield CycleSpans(operation, size, count, 1, *rows)
            # commands of other kinds may stand between those of a queue
            in_queue = np.repeat(~is_together & (counts > 1), counts) & (self.operation == place)
            yield from self._queued(operation, in_queue)

    def _queued(self, operation: str, in_queue: Array) -> Iterator[CycleSpans]:
        for size in np.unique(self.bytes[in_queue]).tolist():
            is_kind = in_queue & (self.bytes == size)
            depth = int(np.quantile(self.depth[is_kind], FULL_QUEUE, method="inverted_cdf"))
            firsts: list[int] = []
            for run in _runs(is_kind, self.group):
                # a command of the same run has to follow the last one of a span
                firsts += range(run.start, run.stop - depth, depth)
            if firsts:
                first = np.asarray(firsts)
                yield CycleSpans(
                    operation, size, 1, depth, first, first + depth, self.starts[first], self.starts[first + depth]
                )


def _runs(is_kind: Array, group: Array) -> Iterator[range]:
    """Runs of commands that follow one another in one busy stretch."""
    places = np.flatnonzero(is_kind)
    if not len(places):
        return
    is_break = (np.diff(places) > 1) | (np.diff(group[places]) > 0)
    for run in np.split(places, np.flatnonzero(is_break) + 1):
        yield range(int(run[0]), int(run[-1]) + 1)
