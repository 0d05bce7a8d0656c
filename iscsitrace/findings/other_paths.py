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
    several = np.unique(own[is_asked])
    every = history.source("cycles")
    is_other = np.isin(history.source.once(_volumes_by_row), several) & ~np.isin(every.raw("session"), history.sessions)
    is_other &= (every.raw("status") == 0) & known(every, "status_ns")
    is_other &= np.isin(every.raw("lba"), cycles.raw("lba")[rows[is_asked]])
    others = np.flatnonzero(is_other)
    done: dict[tuple[Any, ...], list[int]] = {}
    keys = zip(
        history.source.once(_volumes_by_row)[others].tolist(),
        *(every.raw(name)[others].tolist() for name in _ADDRESS),
        strict=True,
    )
    for other, key in zip(others.tolist(), keys, strict=True):
        done.setdefault(key, []).append(other)
    first_ns, status_ns = every.raw("command_first_ns"), every.raw("status_ns")
    sessions = set()
    for at in np.flatnonzero(is_asked).tolist():
        key = (int(own[at]), *(cycles.raw(name)[rows[at]].item() for name in _ADDRESS))
        since = int(since_ns[at])
        for other in done.get(key, ()):
            if since <= first_ns[other] <= since + within_ns:
                found[at] = status_ns[other]
                sessions.add(int(every.raw("session")[other]))
                break
    return Retried(found, tuple(sorted(sessions)))


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
