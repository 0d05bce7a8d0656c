"""Parts of a session that are worth a plot: a typical command, the slowest command, its I/O job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from iscsitrace.measure import connection_counts
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.waits import Waits
from iscsitrace.plots.marks import Array
from iscsitrace.plots.view import Zoom
from iscsitrace.relate.jobs.streams import Job
from iscsitrace.tables.nulls import known
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
    """Number of a data command, or of another if there is none; of the whole story. It may have no status."""
    around_slowest: Zoom | None = None
    """The connection of the slowest command, shortly before to shortly after it."""
    job: Zoom | None = None
    """All sessions during the largest job that this session shares with others."""
    story: tuple[int, ...] = ()
    """Sessions that took its place, or whose place it took."""
    has_connection_counts: bool = False
    """Whether the number of its connections changes while it reads and writes."""

    def command(self, number: int) -> Zoom:
        """One command of the story."""
        return Zoom(session=self.session, cycles=range(number, number + 1), story=self.story)


def find(
    cycles: Table,
    waited: Waits,
    session: int,
    connection_count: int,
    jobs: Sequence[Job],
    story: tuple[int, ...] = (),
) -> Examples:
    """The examples of a session; ``cycles``, their waits and ``jobs`` are those of the trace, ``story`` are the other
    sessions of its story.
    """
    is_measured = (cycles.raw("session") == session) & known(cycles, "session") & known(cycles, "latency_ns")
    slowest, around = _slowest(cycles, waited, np.isin(cycles.raw("session"), (session, *story)))
    return Examples(
        session=session,
        connection_count=connection_count,
        typical=_typical(cycles.select(is_measured)),
        slowest=slowest,
        around_slowest=around,
        job=_shared(jobs, session),
        story=story,
        has_connection_counts=connection_count > 1
        and any(each.session == session for each in connection_counts.of_cycles(cycles)),
    )


def _slowest(cycles: Table, waited: Waits, which: Array) -> tuple[int | None, Zoom | None]:
    """The slowest data command among these, or of others if there is none; and the time around it."""
    rows = np.flatnonzero(which)
    ranked = rows[waited.select(rows).slowest_first()]
    is_data = is_data_command(cycles.select(ranked))
    ranked = ranked[is_data] if is_data.any() else ranked
    if not len(ranked):
        return None, None
    chosen = ranked[:1]
    (row,) = cycles.select(chosen).rows(("cycle", "session", "connection", "command_first_ns"))
    (end_ns,) = waited.select(chosen).ends_ns(cycles.select(chosen)).tolist()
    margin_ns = int(_AROUND * (end_ns - row["command_first_ns"]))
    first_ns, last_ns = row["command_first_ns"] - margin_ns, end_ns + margin_ns
    return row["cycle"], Zoom(row["session"], row["connection"], time_from_ns=first_ns, time_to_ns=last_ns)


def _typical(cycles: Table) -> int | None:
    """Of the commands of the operation and size that moved most bytes, the one with the median latency."""
    moved = cycles.select(cycles.raw("data_bytes") > 0)
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
