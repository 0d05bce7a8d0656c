"""Parts of a session that are worth a plot: a typical command, the slowest command, its I/O job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from iscsitrace.analysis.curves.view import Zoom
from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.analysis.measures.data_commands import is_data_command
from iscsitrace.analysis.measures.selection import pick
from iscsitrace.tables.table import Table

_AROUND: Final = 0.6
"""Share of a command's latency that is shown before and after it."""


@dataclass(frozen=True)
class Examples:
    """The parts of one session."""

    session: int
    connection_count: int
    typical: int | None = None
    """Number of a command."""
    slowest: int | None = None
    """Number of a data command, or of another if there is none."""
    around_slowest: Zoom | None = None
    """The connection of the slowest command, shortly before to shortly after it."""
    job: Zoom | None = None
    """All sessions during the largest job that this session shares with others."""
    story: tuple[int, ...] = ()
    """Sessions that took its place, or whose place it took."""

    def command(self, number: int) -> Zoom:
        """One command of the session."""
        return Zoom(session=self.session, cycles=range(number, number + 1))


def find(
    cycles: Table, session: int, connection_count: int, jobs: Sequence[Job], story: tuple[int, ...] = ()
) -> Examples:
    """The examples of a session; ``cycles`` and ``jobs`` are those of the trace, ``story`` are the other sessions of
    its story.
    """
    own = pick(cycles, session=session)
    known = own.select(~np.ma.getmaskarray(own["latency_ns"]))
    data = known.select(is_data_command(known))
    slowest = next(pick(data if len(data) else known, top=1).rows(), None)
    return Examples(
        session=session,
        connection_count=connection_count,
        typical=_typical(known),
        slowest=None if slowest is None else int(slowest["cycle"]),
        around_slowest=None if slowest is None else _around(slowest, session),
        job=_shared(jobs, session),
        story=story,
    )


def _around(row: dict[str, Any], session: int) -> Zoom:
    margin_ns = int(_AROUND * row["latency_ns"])
    return Zoom(
        session,
        row["connection"],
        time_from_ns=row["command_first_ns"] - margin_ns,
        time_to_ns=row["status_ns"] + margin_ns,
    )


def _typical(known: Table) -> int | None:
    """Of the commands of the operation and size that moved most bytes, the one with the median latency."""
    moved = known.select(known.raw("data_bytes") > 0)
    if not len(moved):
        return None
    sorts, place = np.unique(
        np.stack([moved.raw("operation").astype(np.int64), moved.raw("data_bytes").astype(np.int64)]),
        axis=1,
        return_inverse=True,
    )
    most = int(np.bincount(place.ravel(), weights=moved.raw("data_bytes"), minlength=sorts.shape[1]).argmax())
    alike = moved.select(place.ravel() == most)
    order = np.argsort(np.ma.getdata(alike["latency_ns"]), kind="stable")
    return int(alike.raw("cycle")[order[(len(order) - 1) // 2]])


def _shared(jobs: Sequence[Job], session: int) -> Zoom | None:
    shared = [job for job in jobs if {run.session for run in job.runs} > {session}]
    if not shared:
        return None
    job = max(shared, key=lambda each: each.bytes)
    return Zoom(
        time_from_ns=job.first_ns, time_to_ns=job.first_ns + job.whole_ns, to_target=job.streams[0].run.to_target
    )
