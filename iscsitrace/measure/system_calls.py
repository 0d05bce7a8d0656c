"""The system calls behind the commands of a session, inferred from sizes or times (docs/method.md, section 2).

A kernel splits a long read or write into commands of its largest size and a shorter last one. The shorter one ends the
call: 500 KiB become 127.5 + 127.5 + 127.5 + 117.5 KiB, again and again. Where all pieces are full, the pieces of a call
are issued at once, and the next call when all are done. Where neither pattern repeats, nothing is inferred. Commands
that merely overlap were not issued at once: programs that wait for their own answers overlap, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from iscsitrace.measure import by_subject
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Array, Table

_AT_ONCE: Final = 0.1
"""Largest share of a group's time, from its first command to its last status, in which its initiator sends nothing
before its last command: at least nine tenths of their delays are then shared."""


def is_at_once(cycles: Table, firsts: Array) -> Array:
    """Which groups of commands were issued at once; bool, one for each group.

    ``cycles`` are in order of time, ``firsts`` the rows with the first command of each group, ascending; a group ends
    where the next one begins.
    """
    if not len(firsts):
        return np.zeros(0, dtype=bool)
    starts = cycles.raw("command_first_ns").astype(np.int64)
    gaps = np.zeros(len(cycles), dtype=np.int64)
    gaps[1:] = np.maximum(starts[1:] - _sent_ns(cycles, starts)[:-1], 0)
    # the last data of these was requested: when their unsolicited data ended is unknown
    is_unclear = (cycles.raw("unsolicited_bytes") > 0) & (cycles.raw("r2t_count") > 0)
    gaps[1:][is_unclear[:-1]] = 0
    gaps[firsts] = 0
    ends = np.where(known(cycles, "status_ns"), cycles.raw("status_ns"), starts)
    lasted = np.maximum.reduceat(ends, firsts) - starts[firsts]
    return np.asarray(np.add.reduceat(gaps, firsts) <= _AT_ONCE * lasted)


def _sent_ns(cycles: Table, starts: Array) -> Array:
    """When each command was sent, with the data that needs no R2T."""
    sent = np.where(known(cycles, "command_last_ns"), cycles.raw("command_last_ns"), starts)
    has_data = (cycles.raw("unsolicited_bytes") > 0) & known(cycles, "data_last_ns")
    return np.where(has_data, np.maximum(sent, cycles.raw("data_last_ns")), sent)


REPEATED: Final = 0.8
"""Least share of the system calls with one size for it to be inferred; the rest are ends of files."""

FULL_PIECES: Final = 0.25
"""Least share of the commands with the size of a full piece. A split call has at most one rest, so at least half of its
pieces are full; half of that leaves room for other commands."""

SYSTEM_CALLS: Final = 4
"""Least count of system calls of that size: fewer can be chance."""

SYSTEM_CALL_MAX_BYTES: Final = 64 << 20
"""Largest size of an inferred system call: a longer run of commands is a stream."""


@dataclass(frozen=True)
class SystemCall:
    """A size of system call that repeats, and how it was split."""

    bytes: int
    pieces: tuple[int, ...]
    """Bytes of its commands in order."""
    count: int
    """How many such calls were seen."""
    is_at_once: bool
    """Whether the pieces were in flight together, not one after another."""
    rows: tuple[int, ...]
    """Rows of the commands of one such call."""


def is_continued(cycles: Table) -> Array:
    """Which commands begin where the one before them ended, with the same LUN and operation."""
    lba = cycles.raw("lba").astype(np.int64)
    found = np.zeros(len(cycles), dtype=bool)
    is_known = known(cycles, "lba")
    ends = lba + cycles.raw("block_count").astype(np.int64)
    found[1:] = is_known[1:] & is_known[:-1] & (lba[1:] == ends[:-1])
    for name in ("lun", "operation", "session"):
        values = cycles.raw(name)
        found[1:] &= values[1:] == values[:-1]
    return found


def sequential_shares(cycles: Table, place: Array, count: int) -> Array:
    """For each of that many subjects, the share of its commands that begin where any other command ended.

    ``place`` is the subject of each command, int64.
    """
    is_known = known(cycles, "lba")
    place, lba = place[is_known], cycles.raw("lba").astype(np.int64)[is_known]
    # the end of a command at the greatest address overflows, and may be before its start
    ends = lba + cycles.raw("block_count").astype(np.int64)[is_known]
    found = np.zeros(count)
    for line, own in by_subject.lines(place, lba, ends):
        # searching sorted values for sorted values is several times as fast
        starts, stops = np.sort(line.at(place[own], lba[own])), np.sort(line.at(place[own], ends[own]))
        is_sequential = stops[np.searchsorted(stops, starts).clip(max=len(stops) - 1)] == starts
        of = line.subjects(starts)
        found += np.bincount(of[is_sequential], minlength=count) / np.maximum(np.bincount(of, minlength=count), 1)
    return found


def infer(cycles: Table) -> SystemCall | None:
    """The system call behind these reads or writes; None where no pattern repeats."""
    if not len(cycles):
        return None
    sizes = cycles.raw("bytes").astype(np.int64)
    continued = is_continued(cycles)
    return _by_rest(cycles, sizes, continued) or _by_moment(cycles, sizes, continued)


def _by_rest(cycles: Table, sizes: Array, continued: Array) -> SystemCall | None:
    """By sizes: a piece that is not full ends its call."""
    each, count = np.unique(sizes, return_counts=True)
    full = each[count >= FULL_PIECES * len(sizes)].max(initial=0)
    is_rest = sizes < full
    begins = ~continued
    begins[1:] |= is_rest[:-1]
    found = _repeated(sizes, np.flatnonzero(begins))
    # a run without a shorter last piece does not show where calls end
    if found is None or not is_rest[found[2]]:
        return None
    return _call(cycles, sizes, *found)


def _by_moment(cycles: Table, sizes: Array, continued: Array) -> SystemCall | None:
    """By times: the pieces of a call are issued at once, and the next call begins when none is in flight."""
    depth = cycles.raw("queue_depth")
    starts = np.flatnonzero(~continued | (depth == 1))
    at_once = np.repeat(is_at_once(cycles, starts), np.diff(starts, append=len(sizes)))
    found = _repeated(sizes, np.flatnonzero(~continued | (depth == 1) | ~at_once))
    if found is None:
        return None
    total, first, last, count = found
    if not (depth[first : last + 1] == np.arange(1, last - first + 2)).all():
        return None
    return _call(cycles, sizes, total, first, last, count)


def _repeated(sizes: Array, starts: Array) -> tuple[int, int, int, int] | None:
    """The commonest total of groups of two or more: total, first and last row of one such group, and their number."""
    ends = np.append(starts[1:], len(sizes))
    sums = np.add.reduceat(sizes, starts)
    is_cut = (ends - starts >= 2) & (sums <= SYSTEM_CALL_MAX_BYTES)
    if not is_cut.any():
        return None
    each, count = np.unique(sums[is_cut], return_counts=True)
    place = int(np.argmax(count))
    # commands outside of such calls count against it as calls of another size do
    if count[place] < SYSTEM_CALLS or count[place] < REPEATED * len(starts):
        return None
    example = int(np.flatnonzero(is_cut & (sums == each[place]))[0])
    return int(each[place]), int(starts[example]), int(ends[example]) - 1, int(count[place])


def _call(cycles: Table, sizes: Array, total: int, first: int, last: int, count: int) -> SystemCall:
    rows = tuple(range(first, last + 1))
    is_at_once = bool(cycles.raw("queue_depth")[last] > 1)
    return SystemCall(total, tuple(sizes[first : last + 1].tolist()), count, is_at_once, rows)
