"""The tasks of a session as spans of time, of which each is one cycle of the model. It judges nothing.

One task after another: a span is from a command to the next. Tasks that are handed in together, again and again the
same (the pieces of a system call), share their delays: they are one cycle with a block of their sum. Tasks that keep a
queue filled: a span is from a command to the one that took its place, as many commands later as are outstanding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.model.setting import OPERATIONS
from iscsitrace.tables.table import Table

Array = NDArray[Any]

TOGETHER: Final = 0.5
"""Share of the bytes of tasks outstanding together that has to come in groups of one make for these to be cycles."""
FULL_QUEUE: Final = 0.9
"""The queue depth that so many of the tasks do not exceed is the one that is kept up."""
PROMPT: Final = 0.75
"""Share of the least round trip to the initiator after which a command may be the answer to a status."""
_NO_END: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Spans:
    """Cycles of one kind, in order of time."""

    operation: str
    block_bytes: int
    """Of one cycle: of its task, or of all tasks that were handed in together."""
    together: int
    """Tasks that were handed in together; 1 for all others."""
    queue_depth: int
    first: Array
    """Place of the first task of each in the tasks of the session."""
    last: Array
    """Place behind the last one."""
    starts: Array
    ends: Array
    """Where no command followed, the largest integer."""

    @property
    def has_end(self) -> Array:
        """Which of them have a period."""
        return np.asarray(self.ends != _NO_END)

    @property
    def tasks_in_each(self) -> int:
        """Tasks that a span covers."""
        return self.together * self.queue_depth

    def where(self, which: Array) -> Spans:
        """Those that a boolean mask picks."""
        rows = (self.first[which], self.last[which], self.starts[which], self.ends[which])
        return Spans(self.operation, self.block_bytes, self.together, self.queue_depth, *rows)


class Tasks:
    """The tasks of one session in the order of their commands."""

    def __init__(self, cycles: Table, answer_ns: float = 0) -> None:
        """``answer_ns`` is the round trip between tap and initiator: no command follows from a status sooner."""
        self._prompt_ns = np.int64(PROMPT * answer_ns)
        self.table = cycles.select(np.argsort(cycles.raw("command_first_ns"), kind="stable"))
        self.starts = self.table.raw("command_first_ns")
        words = self.table.words("operation")
        codes = [words.index(word) if word in words else -1 for word in OPERATIONS]
        code = self.table.raw("operation").astype(np.int64)
        mask = self.table.mask("bytes")
        self.bytes = np.where(False if mask is None else mask, 0, self.table.raw("bytes")).astype(np.int64)
        self.operation = np.select([code == each for each in codes], range(len(codes)), -1)
        self.operation[self.bytes == 0] = -1
        """Place in OPERATIONS; -1 for tasks that move no data."""

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def depth(self) -> Array:
        """Tasks outstanding for the initiator at each command, itself included.

        A task whose status was never seen counts as done: it would else be outstanding for ever.
        """
        is_known = self._is_known("status_ns")
        # at the initiator: there a status is on its way when it passes the tap, and the next command has been
        done = self.table.raw("status_ns") + self._prompt_ns
        is_acked = is_known & self.table.raw("is_status_in_data") & self._is_known("data_acked_ns")
        done[is_acked] = np.maximum(done, self.table.raw("data_acked_ns"))[is_acked]
        ended = np.searchsorted(np.sort(done[is_known]), self.starts, side="right")
        begun = np.cumsum(is_known) - is_known
        return np.asarray(np.maximum(begun - ended, 0) + 1)

    def _is_known(self, name: str) -> Array:
        mask = self.table.mask(name)
        return np.ones(len(self), dtype=bool) if mask is None else ~mask

    @cached_property
    def group(self) -> Array:
        """Number of the stretch without a break in which something was outstanding."""
        return np.cumsum(self.depth == 1)

    def spans(self) -> Iterator[Spans]:
        """All kinds of cycles that there are."""
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
            kinds = Counter[tuple[int, int]]()
            for count, size in zip(counts[queued].tolist(), sums[queued].tolist(), strict=True):
                kinds[count, size] += size
            together = kinds.most_common(1)[0][0] if kinds else None
            if together and (kinds[together] < TOGETHER * kinds.total() or kinds[together] < 3 * together[1]):
                together = None
            is_together = queued & (counts == together[0]) & (sums == together[1]) if together else queued & False
            alone = is_own & (counts == 1)
            for is_kind, count, size in (
                *((alone & (sums == size), 1, size) for size in np.unique(sums[alone]).tolist()),
                *(((is_together, *together),) if together else ()),
            ):
                rows = (firsts[is_kind], lasts[is_kind], self.starts[firsts[is_kind]], ends[is_kind])
                yield Spans(operation, size, count, 1, *rows)
            # tasks of other kinds may stand between those of a queue
            in_queue = np.repeat(~is_together & (counts > 1), counts) & (self.operation == place)
            yield from self._queued(operation, in_queue)

    def _queued(self, operation: str, in_queue: Array) -> Iterator[Spans]:
        for size in np.unique(self.bytes[in_queue]).tolist():
            is_kind = in_queue & (self.bytes == size)
            depth = int(np.quantile(self.depth[is_kind], FULL_QUEUE, method="inverted_cdf"))
            firsts: list[int] = []
            for run in _runs(is_kind, self.group):
                # the last of a span has to be followed by a command of the same run
                firsts += range(run.start, run.stop - depth, depth)
            if firsts:
                first = np.asarray(firsts)
                yield Spans(
                    operation, size, 1, depth, first, first + depth, self.starts[first], self.starts[first + depth]
                )


def _runs(is_kind: Array, group: Array) -> Iterator[range]:
    """Stretches of tasks that follow one another, of one group."""
    places = np.flatnonzero(is_kind)
    if not len(places):
        return
    is_break = (np.diff(places) > 1) | (np.diff(group[places]) > 0)
    for run in np.split(places, np.flatnonzero(is_break) + 1):
        yield range(int(run[0]), int(run[-1]) + 1)
