"""Other paths: commands that failed or had no status on one path to a volume, and ended well over another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.history import History, listed
from iscsitrace.findings.surroundings import Surroundings
from iscsitrace.relate import volumes
from iscsitrace.tables.nulls import known

Array = NDArray[Any]
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
