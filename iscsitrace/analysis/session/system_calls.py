"""Which system calls the tasks of a session were cut from, where sizes or moments tell (docs/method.md, section 2).

A kernel cuts a long read or write into tasks of its largest size and a rest. Where there is a rest, it ends the call:
500 KiB become 127.5 + 127.5 + 127.5 + 117.5 KiB, again and again. Where all pieces are full, those of a call are sent
at once, and the next call only when all are done. Where neither repeats, nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.findings.thresholds import FULL_PIECES, REPEATED, SYSTEM_CALL_MAX_BYTES, SYSTEM_CALLS
from iscsitrace.tables.table import Table

Array = NDArray[Any]


@dataclass(frozen=True)
class SystemCall:
    """A size of system call that repeats, and how it was cut."""

    bytes: int
    pieces: tuple[int, ...]
    """Bytes of its tasks in order."""
    count: int
    """How often it was seen so."""
    is_at_once: bool
    """Whether the pieces were outstanding together, not one after another."""
    rows: tuple[int, ...]
    """Places of one call's tasks in the table."""


def is_continued(cycles: Table) -> Array:
    """For each task whether it begins where the one before it ended: same unit, same operation; the first does not."""
    lba = cycles.raw("lba").astype(np.int64)
    found = np.zeros(len(cycles), dtype=bool)
    if len(cycles) < 2 or (known := cycles.mask("lba")) is None:
        return found
    ends = lba + cycles.raw("block_count").astype(np.int64)
    found[1:] = ~known[1:] & ~known[:-1] & (lba[1:] == ends[:-1])
    for name in ("lun", "operation", "session"):
        values = cycles.raw(name)
        found[1:] &= values[1:] == values[:-1]
    return found


def sequential_share(cycles: Table) -> float:
    """Share of the tasks that begin where some other task ended, whatever came between."""
    known = cycles.mask("lba")
    if not len(cycles) or known is None:
        return 0.0
    lba = cycles.raw("lba").astype(np.int64)[~known]
    # sorted arrays are searched in passing, several times as fast
    ends = np.sort(lba + cycles.raw("block_count").astype(np.int64)[~known])
    starts = np.sort(lba)
    place = np.searchsorted(ends, starts).clip(max=len(ends) - 1)
    return float((ends[place] == starts).mean()) if len(lba) else 0.0


def infer(cycles: Table) -> SystemCall | None:
    """The system call behind these tasks that moved data; None where nothing tells."""
    if len(cycles) < SYSTEM_CALLS * 2:
        return None
    sizes = cycles.raw("bytes").astype(np.int64)
    continued = is_continued(cycles)
    return _by_rest(cycles, sizes, continued) or _by_moment(cycles, sizes, continued)


def _by_rest(cycles: Table, sizes: Array, continued: Array) -> SystemCall | None:
    """A piece that is not full ends its call."""
    each, count = np.unique(sizes, return_counts=True)
    full = each[count >= FULL_PIECES * len(sizes)].max(initial=0)
    is_rest = sizes < full
    begins = ~continued
    begins[1:] |= is_rest[:-1]
    found = _repeated(sizes, np.flatnonzero(begins))
    # with no rest at its end a run says nothing of where calls end
    if found is None or not is_rest[found[2]]:
        return None
    return _call(cycles, sizes, *found)


def _by_moment(cycles: Table, sizes: Array, continued: Array) -> SystemCall | None:
    """The pieces of a call are outstanding together; the next begins when nothing is."""
    depth = cycles.raw("queue_depth")
    begins = ~continued | (depth == 1)
    found = _repeated(sizes, np.flatnonzero(begins))
    if found is None:
        return None
    total, first, last, count = found
    if not (depth[first : last + 1] == np.arange(1, last - first + 2)).all():
        return None
    return _call(cycles, sizes, total, first, last, count)


def _repeated(sizes: Array, starts: Array) -> tuple[int, int, int, int] | None:
    """The sum that most groups of two or more have, the first and last row of one of them, and how many there are."""
    ends = np.append(starts[1:], len(sizes))
    sums = np.add.reduceat(sizes, starts)
    is_cut = (ends - starts >= 2) & (sums <= SYSTEM_CALL_MAX_BYTES)
    if not is_cut.any():
        return None
    each, count = np.unique(sums[is_cut], return_counts=True)
    place = int(np.argmax(count))
    # tasks that belong to no such call speak against it as much as calls of another size
    if count[place] < SYSTEM_CALLS or count[place] < REPEATED * len(starts):
        return None
    example = int(np.flatnonzero(is_cut & (sums == each[place]))[0])
    return int(each[place]), int(starts[example]), int(ends[example]) - 1, int(count[place])


def _call(cycles: Table, sizes: Array, total: int, first: int, last: int, count: int) -> SystemCall:
    rows = tuple(range(first, last + 1))
    is_at_once = bool(cycles.raw("queue_depth")[last] > 1)
    return SystemCall(total, tuple(sizes[first : last + 1].tolist()), count, is_at_once, rows)
