"""Statuses other than GOOD of a story's commands: what they say, of which commands, and whether retries succeeded, on
the same path to the volume or another one. It measures and does not judge: which of them are failures is decided by
the findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.history import History, Surroundings, listed
from iscsitrace.findings.thresholds import MILLISECOND_NS
from iscsitrace.measure import intervals
from iscsitrace.measure.data_commands import is_for, is_operation
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.intervals import Span
from iscsitrace.relate import volumes
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import command_status
from iscsitrace.wording.command_status import CommandStatus
from iscsitrace.wording.sentences import joined

Array = NDArray[Any]

RETRY_NS: Final = 5_000 * MILLISECOND_NS
"""Longest time from a status to the retry of its command: initiators retry at once, or a few seconds later where the
logical unit is busy, becomes ready or changes its access state."""

RETRIES: Final = 5
"""Retries after which Linux reports an I/O error (SD_MAX_RETRIES): more tries of one command are those of a program."""

_NAMED_RANGES: Final = 4
_SHOWN: Final = 3


def has_status(facts: Facts) -> Array:
    """Which stories have a status other than GOOD, or a response other than success."""
    return facts.count("cycles", _is_other) > 0


def _is_other(cycles: Table) -> Array:
    codes = ("status", "response")
    return np.asarray(np.any([known(cycles, name) & (cycles.raw(name) != 0) for name in codes], axis=0))


class Statuses:
    """The commands of a story that ended in another status than GOOD."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.cycles = history.cycles
        columns = (self.cycles.raw(name) for name in ("status", "sense_key", "asc", "ascq"))
        self.found, self.places = command_status.of_columns(
            *columns, response=self.cycles.raw("response"), is_read_or_write=self.cycles.each(is_read_or_write)
        )

    @cached_property
    def is_work(self) -> Array:
        """Which commands read, write or erase data, or flush."""
        return np.asarray(self.history.is_data | is_for(self.cycles, "flush"))

    def where(self, is_meant: Callable[[CommandStatus], bool], *, is_work: bool = True) -> Array:
        """Rows of the commands whose status is meant: of those that read, write, erase or flush, or of all others."""
        if not self.found:
            return np.zeros(0, dtype=np.intp)
        wanted = np.array([is_meant(each) for each in self.found] + [False], dtype=bool)
        # a capture may lack the end of a status PDU
        return np.flatnonzero(wanted[self.places] & (self.is_work == is_work) & known(self.cycles, "status_ns"))

    def groups(self, rows: Array) -> list[StatusGroup]:
        """These commands by status, LUN and operation, the most frequent first."""
        if not len(rows):
            return []
        keys = np.stack([self.places[rows].astype(np.uint64), _lun(self.cycles, rows), _operation(self.cycles, rows)])
        _, numbers = np.unique(keys, axis=1, return_inverse=True)
        order = np.argsort(numbers.ravel(), kind="stable")
        parts = np.split(rows[order], np.flatnonzero(np.diff(numbers.ravel()[order])) + 1)
        return sorted((StatusGroup(self, part) for part in parts), key=lambda group: -len(group.rows))


@dataclass(frozen=True)
class StatusGroup:
    """Commands of one operation on one LUN that ended in the same status."""

    of: Statuses
    rows: Array
    """Rows of the story's commands, in order."""

    @property
    def status(self) -> CommandStatus:
        """Their status."""
        place = int(self.of.places[self.rows[0]])
        return self.of.found[place]

    @property
    def cycles(self) -> Table:
        """The commands."""
        return self.of.cycles.select(self.rows)

    @property
    def operation(self) -> str:
        """``READ``; empty where a snaplen cut it off."""
        return spoken(self.cycles["operation"][0])

    @property
    def lun(self) -> int | None:
        """Their logical unit."""
        value = self.cycles["lun"][0]
        return None if value is np.ma.masked else int(value)

    @cached_property
    def same(self) -> Array:
        """The rows of all commands of this operation on this LUN, whatever their status."""
        cycles, first = self.of.cycles, self.rows[0]
        is_same = cycles.raw("operation") == cycles.raw("operation")[first]
        return np.flatnonzero(is_same & (cycles.raw("lun") == cycles.raw("lun")[first]))

    def words(self) -> str:
        """``4 of 160 READ commands to LUN 0``."""
        where = "" if self.lun is None else f" to LUN {self.lun}"
        whole = len(self.same)
        count = f"{len(self.rows):,} of {whole:,}" if whole > 1 else "the only"
        words = (count, self.operation, "command" if whole == 1 else "commands")
        return f"{' '.join(filter(None, words))}{where}"

    def when(self) -> str:
        """``from 4.24 s to 6.24 s``: the first and the last of the statuses."""
        times = self.cycles.raw("status_ns")
        first, last = (self.of.history.since_start(int(each)) for each in (times.min(), times.max()))
        return f"at {first}" if first == last else f"from {first} to {last}"

    def blocks(self) -> str:
        """``LBA 12800 to 12927``: what they addressed; empty where that is unknown."""
        cycles = self.cycles
        cycles = cycles.select(known(cycles, "lba") & known(cycles, "block_count"))
        if not len(cycles):
            return ""
        starts = cycles.raw("lba").astype(np.int64)
        firsts, ends = intervals.merged(starts, starts + np.maximum(cycles.raw("block_count").astype(np.int64), 1))
        ranges = [
            str(first) if last == first else f"{first} to {last}"
            for first, last in zip(firsts[:_NAMED_RANGES].tolist(), (ends[:_NAMED_RANGES] - 1).tolist(), strict=True)
        ]
        more = len(firsts) - len(ranges)
        return f"LBA {', '.join(ranges)}" + (f" and {wording.count(more, 'other range')}" if more else "")

    def frames(self) -> Iterator[int | None]:
        """Command and status of the first ones."""
        for row in self.cycles.select(slice(0, _SHOWN)).rows(("command_frame", "status_frame")):
            yield from row.values()


@dataclass(frozen=True)
class Outcome:
    """What became of commands that failed or were refused."""

    is_recovered: Array
    """Which of them succeeded when they were retried."""
    spans: tuple[Span, ...]
    """When: from the first command to the last status as long as none of its operation on its LUN succeeded, and from
    each command to the status of a retry that succeeded."""
    other_path: str = ""
    """The session over which some of them succeeded: another path to the volume."""

    @property
    def cost_ns(self) -> int:
        """The time of all spans."""
        return sum(last - first for first, last in self.spans)


def outcome(statuses: Statuses, rows: Array) -> Outcome:
    """What became of these commands."""
    cycles = statuses.cycles
    good_ns, tries = _retries(cycles, rows)
    ended_ns = cycles.raw("status_ns")[rows]
    is_recovered = (good_ns >= 0) & (tries <= RETRIES)
    left = np.flatnonzero(~is_recovered)
    over = retried(statuses.history, rows[left], ended_ns[left], RETRY_NS)
    good_ns[left] = np.where(over.status_ns >= 0, over.status_ns, good_ns[left])
    is_recovered[left] = over.status_ns >= 0
    starts, ends = _runs(cycles, rows)
    firsts = np.concatenate([starts, cycles.raw("command_first_ns")[rows]])
    lasts = np.concatenate([ends, np.where(is_recovered, good_ns, ended_ns)])
    merged = intervals.merged(firsts, lasts)
    spans = tuple(zip(*(each.tolist() for each in merged), strict=True))
    return Outcome(is_recovered, spans, over.label if over.sessions else "")


def _retries(cycles: Table, rows: Array) -> tuple[Array, Array]:
    """When the next retry of each command succeeded, -1 if none did within RETRY_NS, and how many failed before."""
    failed = np.zeros(len(cycles), dtype=bool)
    failed[rows] = True
    status_ns, first_ns = cycles.raw("status_ns"), cycles.raw("command_first_ns")
    # what addresses blocks that one of these commands addressed
    near = np.flatnonzero(
        known(cycles, "status_ns")
        & (known(cycles, "lba") | failed)
        & (first_ns >= first_ns[rows].min(initial=np.iinfo(np.int64).max))
        & np.isin(cycles.raw("lba"), np.unique(cycles.raw("lba")[rows]))
        & np.isin(cycles.raw("operation"), np.unique(cycles.raw("operation")[rows]))
    )
    near = near[failed[near] | (cycles.raw("status")[near] == 0)]
    keys = np.stack(
        [
            _operation(cycles, near),
            _lun(cycles, near),
            cycles.raw("lba")[near].astype(np.uint64),
            cycles.raw("block_count")[near].astype(np.uint64),
        ]
    )
    _, key = np.unique(keys, axis=1, return_inverse=True)
    order = np.lexsort((first_ns[near], key.ravel()))
    near, key = near[order], key.ravel()[order]
    places = np.arange(len(near))
    is_good = ~failed[near]
    # the next success from each place on
    following = np.minimum.accumulate(np.where(is_good, places, len(near))[::-1])[::-1]
    target = following.clip(max=max(len(near) - 1, 0))
    is_same = (following < len(near)) & (key[target] == key) if len(near) else np.zeros(0, dtype=bool)
    is_soon = first_ns[near[target]] - status_ns[near] <= RETRY_NS
    good_ns = np.where(is_same & is_soon, status_ns[near[target]], -1)
    # the first place of its run of failures: after the last success, or where its key begins
    begins = ~is_good & np.concatenate([[True], is_good[:-1] | (key[1:] != key[:-1])]) if len(near) else is_good
    run_first = np.maximum.accumulate(np.where(begins, places, 0))
    tries = np.where(is_same, target - run_first, 0)
    of_row = np.zeros(len(cycles), dtype=np.int64)
    of_row[near] = places
    own = of_row[rows]
    # without an address a retry cannot be told from another command
    return np.where(known(cycles, "lba")[rows], good_ns[own], -1), tries[own]


def _runs(cycles: Table, rows: Array) -> tuple[Array, Array]:
    """Runs of these commands in which no command of the same operation on the same LUN succeeded."""
    first_ns, status_ns = cycles.raw("command_first_ns"), cycles.raw("status_ns")
    failed = np.zeros(len(cycles), dtype=bool)
    failed[rows] = True
    is_good = (cycles.raw("status") == 0) & known(cycles, "status_ns")
    is_good &= (status_ns >= status_ns[rows].min(initial=0)) & (status_ns <= status_ns[rows].max(initial=0))
    near = np.flatnonzero(failed | is_good)
    _, key = np.unique(np.stack([_operation(cycles, near), _lun(cycles, near)]), axis=1, return_inverse=True)
    order = np.lexsort((status_ns[near], key.ravel()))
    near, key = near[order], key.ravel()[order]
    is_failed = failed[near]
    is_new = np.concatenate([[True], (key[1:] != key[:-1]) | ~is_failed[:-1]]) if len(near) else is_failed
    run = np.cumsum(is_failed & is_new)[is_failed] - 1
    own = near[is_failed]
    count = int(run[-1]) + 1 if len(run) else 0
    starts = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(starts, run, first_ns[own])
    ends = np.zeros(count, dtype=np.int64)
    np.maximum.at(ends, run, status_ns[own])
    return starts, ends


def of(history: History) -> Statuses:
    """The statuses of a story, computed once."""
    return history.once(Statuses)


def spoken(operation: str | None) -> str:
    """``SYNCHRONIZE CACHE``: the name of an operation in a sentence; empty for one that is not known."""
    return (operation or "").replace("_", " ").upper()


def in_words(cycles: Table) -> str:
    """``3 READ and 1 WRITE commands``, the most frequent operation first; ``no command`` of none."""
    if not len(cycles):
        return "no command"
    counts = Counter(spoken(name) for name in cycles["operation"].tolist()).most_common()
    # a snaplen may cut off all operations, or those of some commands
    unknown = "unknown" if len(counts) > 1 else ""
    words = [f"{count:,} {name or unknown}".rstrip() for name, count in counts]
    return f"{joined(words)} {'command' if len(cycles) == 1 else 'commands'}"


def is_read_or_write(cycles: Table) -> Array:
    """Also one that a snaplen cut off before its operation: most commands are reads or writes."""
    return np.asarray(is_operation(cycles, "read", "write") | ~known(cycles, "operation"))


def _lun(cycles: Table, rows: Array) -> Array:
    return np.asarray(cycles.raw("lun")[rows].astype(np.uint64))


def _operation(cycles: Table, rows: Array) -> Array:
    return np.asarray(cycles.raw("operation")[rows].astype(np.uint64))


_ADDRESS = ("operation", "lba", "block_count")
"""By which a command that is reissued is known: tag, CmdSN and even the LUN are others on another path."""


@dataclass(frozen=True)
class Retried:
    """What became of commands over other paths."""

    status_ns: Array
    """When each of them ended well there; -1 where none did."""
    sessions: tuple[int, ...]
    """The sessions that ran them."""

    @property
    def label(self) -> str:
        """``session 3``: the other path."""
        return f"{'session' if len(self.sessions) == 1 else 'sessions'} {listed(self.sessions)}"


def retried(history: History, rows: Array, since_ns: Array, within_ns: int) -> Retried:
    """What became of these rows of the story's commands over other paths to their volumes.

    ``since_ns`` is from when on each may be reissued, ``within_ns`` the longest time until then.
    """
    cycles = history.cycles
    found = np.full(len(rows), -1, dtype=np.int64)
    with_paths = history.source.once(_with_paths)
    if not len(rows) or not len(with_paths):
        return Retried(found, ())
    numbers, of_volume = history.source.once(_volume_of_cycles)
    own = of_volume[np.searchsorted(numbers, cycles.raw("cycle")[rows])]
    is_asked = np.isin(own, with_paths) & known(cycles, "lba")[rows]
    if not is_asked.any():
        return Retried(found, ())
    every, done, own_sessions = history.source("cycles"), history.source.once(_done), np.array(history.sessions)
    sessions = set()
    for at in np.flatnonzero(is_asked).tolist():
        since = int(since_ns[at])
        others = done.at(own[at], cycles.raw("lba")[rows[at]], since, since + within_ns)
        is_other = ~np.isin(every.raw("session")[others], own_sessions)
        for name in _ADDRESS:
            is_other &= every.raw(name)[others] == cycles.raw(name)[rows[at]]
        if is_other.any():
            other = int(others[is_other].min())
            found[at] = every.raw("status_ns")[other]
            sessions.add(int(every.raw("session")[other]))
    return Retried(found, tuple(sorted(sessions)))


@dataclass(frozen=True)
class _Done:
    """The commands that ended well, of volumes with several paths, in order of volume, block and time."""

    rows: Array
    """Of ``cycles``."""
    volumes: Array
    lbas: Array
    firsts_ns: Array

    def at(self, volume: np.integer[Any], lba: np.integer[Any], from_ns: int, to_ns: int) -> Array:
        """The rows of those that begin with this block and were issued within a time."""
        begin, end = 0, len(self.rows)
        for values, first, last in (
            (self.volumes, volume, volume),
            (self.lbas, lba, lba),
            (self.firsts_ns, from_ns, to_ns),
        ):
            # a value of another type would make it convert all of them
            low, high = np.array([first, last], dtype=values.dtype)
            within = values[begin:end]
            begin, end = begin + np.searchsorted(within, low), begin + np.searchsorted(within, high, side="right")
        return self.rows[begin:end]


def _done(trace: Surroundings) -> _Done:
    cycles, volumes_by_row = trace("cycles"), trace.once(_volumes_by_row)
    is_done = np.isin(volumes_by_row, trace.once(_with_paths)) & known(cycles, "lba")
    rows = np.flatnonzero(is_done & (cycles.raw("status") == 0) & known(cycles, "status_ns"))
    columns = [each[rows] for each in (volumes_by_row, cycles.raw("lba"), cycles.raw("command_first_ns"))]
    order = np.lexsort(columns[::-1])
    return _Done(rows[order], *(each[order] for each in columns))


def _with_paths(trace: Surroundings) -> Array:
    """The numbers of the volumes with several paths."""
    return np.array([each.number for each in trace.once(volumes.find).all if len(each.paths) > 1], dtype=np.int64)


def _volumes_by_row(trace: Surroundings) -> Array:
    """The volume of each row of ``cycles``, -1 for none."""
    return trace.once(volumes.find).of_commands(trace("cycles"))


def _volume_of_cycles(trace: Surroundings) -> tuple[Array, Array]:
    """The numbers of all commands in order, and the volume of each."""
    numbers = trace("cycles").raw("cycle")
    order = np.argsort(numbers, kind="stable")
    return numbers[order], trace.once(_volumes_by_row)[order]
