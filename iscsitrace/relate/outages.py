"""Outages as the time breakdown has them, each until the first progress after it, over all sessions of a story."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table

OUTAGE_MIN_NS: Final = 1_000_000_000
"""The shortest outage (docs/method.md, section 4)."""


@dataclass(frozen=True)
class Outage:
    """A time without progress, from the last to the next."""

    from_ns: int
    to_ns: int
    sessions: tuple[int, ...]
    is_over: bool
    """Whether progress followed in the capture."""

    @property
    def length_ns(self) -> int:
        """How long it lasted, as far as captured."""
        return self.to_ns - self.from_ns


_PROGRESS: Final = ("r2t_first_ns", "data_first_ns", "status_ns")


def progress(data_commands: Table) -> tuple[NDArray[Any], NDArray[Any]]:
    """The instants of R2Ts, data and statuses of these commands, and the row of each, in no order."""
    rows = [np.flatnonzero(known(data_commands, name)) for name in _PROGRESS]
    instants = [data_commands.raw(name)[own] for name, own in zip(_PROGRESS, rows, strict=True)]
    return np.concatenate(instants), np.concatenate(rows)


def until_progress(
    stretches: Iterable[tuple[int, int, int]], progress_ns: NDArray[Any], progress_sessions: NDArray[Any]
) -> tuple[Outage, ...]:
    """The outages of one story in order, each until progress: what overlaps is one.

    ``stretches`` are start, end and session of each ``outage`` of the time breakdown; one outage may follow upon
    another there, with nothing but an instant of progress between them. ``progress_ns`` are the instants of progress of
    the story, in order, ``progress_sessions`` the session of each.
    """
    found = []
    for first_ns, to_ns, session in stretches:
        from_ns = first_ns
        # the first command after the loss of a session is issued, and then answered; the next session may work while a
        # command of the lost one still waits
        later = int(np.searchsorted(progress_ns, from_ns, "right"))
        while later < len(progress_ns) and progress_ns[later] < to_ns and progress_sessions[later] == session:
            found.append(Outage(from_ns, int(progress_ns[later]), (session,), is_over=True))
            from_ns = found[-1].to_ns
            later = int(np.searchsorted(progress_ns, from_ns, "right"))
        is_over = later < len(progress_ns)
        found.append(Outage(from_ns, int(progress_ns[later]) if is_over else to_ns, (session,), is_over))
    long = (each for each in found if each.length_ns >= OUTAGE_MIN_NS)
    return tuple(_joined(sorted(long, key=lambda each: each.from_ns)))


def _joined(outages: Iterable[Outage]) -> Iterator[Outage]:
    current: Outage | None = None
    for each in outages:
        # progress parts two that touch
        if current is not None and (
            each.from_ns < current.to_ns or (each.from_ns == current.to_ns and not current.is_over)
        ):
            numbers = (*current.sessions, *(number for number in each.sessions if number not in current.sessions))
            end = max(current, each, key=lambda outage: outage.to_ns)
            current = Outage(current.from_ns, end.to_ns, numbers, end.is_over)
            continue
        if current is not None:
            yield current
        current = each
    if current is not None:
        yield current
