"""Data commands as a waterfall: when each was in flight, and its phases."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from iscsitrace.analysis.curves.marks import Array
from iscsitrace.analysis.curves.view import View, picked_cycles, seen_cycles
from iscsitrace.analysis.measures.data_commands import is_data_command
from iscsitrace.analysis.measures.operations import by_operation
from iscsitrace.analysis.measures.waits import Waits
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table

PHASES = ("request", "grant", "transfer", "service", "status_wait", "turnaround")
"""In order of time; a command has the phases of its operation."""
ROW_LIMIT = 80


@dataclass(frozen=True)
class Waterfall:
    """A row per command in order of time: ``len(cycles)`` rows in every array, times int64 nanoseconds."""

    view: View
    cycles: Array
    operations: tuple[str, ...]
    sizes: tuple[int | None, ...]
    """I/O sizes in bytes."""
    starts_ns: Array
    latencies_ns: Array
    """From command to status; 0 where the status is unknown."""
    phases: dict[str, Array]
    """Length of each phase; 0 where the command does not have it or an instant is unknown."""
    has_status: Array
    open_ns: Array
    """From command to status; where there is none, to its abort or the last packet of its connection."""
    cycle_count: int
    """Commands that the rows stand for; beyond ROW_LIMIT each row is the slowest of a group of neighbors."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Non-I/O commands of the view that have no row, by operation, the most frequent first."""


def prepare(cycles: Table, waited: Waits, view: View) -> Waterfall:
    """The rows of a view: its data commands, all commands if it has none; InputInvalid where it has no command."""
    is_seen = seen_cycles(cycles, view, waited.ends_ns(cycles))
    seen, waited = cycles.select(is_seen), waited.select(is_seen)
    if not len(seen):
        raise InputInvalid("nothing to draw: no SCSI command was in flight in the view")
    left_out = {}
    if view.cycles is None and (is_data := is_data_command(seen)).any():
        others = cycles.select(picked_cycles(cycles, view))
        others = others.select(~is_data_command(others))
        left_out = {operation: len(part) for operation, part in by_operation(others)}
        seen, waited = seen.select(is_data), waited.select(is_data)
    shown = _slowest(waited)
    rows, waited = seen.select(shown), waited.select(shown)
    latency = np.ma.asarray(rows["latency_ns"])
    return Waterfall(
        view=view,
        cycles=rows.raw("cycle"),
        operations=tuple(word or "unknown" for word in rows["operation"].tolist()),
        sizes=tuple(np.ma.asarray(rows["bytes"]).tolist()),
        starts_ns=rows.raw("command_first_ns"),
        latencies_ns=np.ma.filled(latency, 0),
        phases={name: np.ma.filled(np.ma.asarray(rows[f"{name}_ns"]), 0) for name in PHASES},
        has_status=~np.ma.getmaskarray(np.ma.asarray(rows["status_ns"])),
        open_ns=waited.ends_ns(rows) - rows.raw("command_first_ns"),
        cycle_count=len(seen),
        left_out=left_out,
    )


def _slowest(waited: Waits) -> Array:
    """The rows to show: all, or the slowest of each of ROW_LIMIT groups of neighbors."""
    count = len(waited.least_ns)
    if count <= ROW_LIMIT:
        return np.arange(count)
    # place among all, the slowest first
    places = np.full(count, count)
    ranked = waited.slowest_first()
    places[ranked] = np.arange(len(ranked))
    bounds = np.linspace(0, count, ROW_LIMIT + 1).astype(np.intp).tolist()
    return np.array([low + int(places[low:high].argmin()) for low, high in pairwise(bounds)])
