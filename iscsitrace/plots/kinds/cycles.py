"""A waterfall: one row per read or write, when it was in flight and its phases."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import waits
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.waits import Waits
from iscsitrace.measure.workload import by_operation
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind, view_of_data_commands, whole_session, with_events
from iscsitrace.plots.marks import Array, Detail
from iscsitrace.plots.style import DurationAxis, TimeAxis, duration
from iscsitrace.plots.view import View, picked_cycles, seen_cycles
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording.cells import size

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


def compute(cycles: Table, waited: Waits, view: View) -> Waterfall:
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


# --- drawing


_PHASES = {
    # phase: colour, hatch, label
    "request": (style.SKY, "", "request: command to first data"),
    "grant": (style.PURPLE, "\\\\", "grant: command to first R2T"),
    "transfer": (style.BLUE, "", "transfer: first to last data"),
    "service": (style.ORANGE, "//", "service: last write data to status"),
    "status_wait": (style.VERMILLION, "xx", "status wait: last read data to status"),
    "turnaround": (style.PALE, "..", "turnaround: status to next command"),
}
_LABEL_LIMIT = 40
_TEXTS = 25
"""Texts of single rows that have room above each other."""
_NAMED_LIMIT = 4
"""Operations that the note on non-I/O commands names."""


def draw(figure: Figure, waterfall: Waterfall) -> None:
    """Draws both panels: one row per command, the first on top."""
    when, where = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2.4))
    places = np.arange(len(waterfall.cycles))
    time = TimeAxis(waterfall.view)
    shown = [name if name in style.OPERATION_MARKS else "other command" for name in waterfall.operations]
    for name in dict.fromkeys(shown):
        chosen = np.array([each == name for each in shown])
        starts = time.of(waterfall.starts_ns[chosen])
        ends = time.of((waterfall.starts_ns + waterfall.open_ns)[chosen])
        color, marker = style.operation_mark(name)
        when.hlines(places[chosen], starts, ends, color=color, linewidth=2.5)
        label = f"{name} in flight"
        when.plot(starts, places[chosen], linestyle="none", marker=marker, markersize=3, color=color, label=label)
    time.apply(when)
    _draw_phases(where, waterfall, places)
    is_sparse = len(places) <= _LABEL_LIMIT
    named = places if is_sparse else places[:: -(-len(places) // _LABEL_LIMIT)]
    names = [f"{waterfall.cycles[row]}  {waterfall.operations[row]} {_size(waterfall, row)}".rstrip() for row in named]
    when.set_yticks(named, names, fontsize=7 if is_sparse else 6)
    when.set_ylim(len(places) - 0.4, -0.6)
    style.legend(when, when, columns=1)
    style.legend(where, where, columns=3)


def notes(waterfall: Waterfall) -> list[str]:
    """Lists what the waterfall omits."""
    found = []
    if len(waterfall.cycles) < waterfall.cycle_count:
        each = -(-waterfall.cycle_count // len(waterfall.cycles))
        found.append(
            f"{waterfall.cycle_count:,} commands: each row is the slowest of {each} in sequence; zoom to see every one"
        )
    whole = np.sum(list(waterfall.phases.values()), axis=0)
    if (whole > _longest_ns(waterfall)).any():
        found.append("turnarounds longer than the plot are cut off")
    if not waterfall.has_status.all():
        found.append(
            f"{int((~waterfall.has_status).sum())} of the commands shown have no status: "
            "they are drawn until their abort or the last packet of their connection"
        )
    if waterfall.left_out:
        most = list(waterfall.left_out.items())[:_NAMED_LIMIT]
        named = ", ".join(f"{count} {operation}" for operation, count in most)
        more = ", ..." if len(waterfall.left_out) > len(most) else ""
        found.append(
            f"only reads and writes are drawn; {sum(waterfall.left_out.values()):,} other commands: {named}{more}"
        )
    return found


def title(waterfall: Waterfall) -> str:
    """Names what the waterfall shows."""
    return "Phases of each read and write" if waterfall.left_out else "Phases of each command"


def _longest_ns(waterfall: Waterfall) -> float:
    """The length of the time axis: the longest command, and part of the turnaround after it."""
    whole = np.sum(list(waterfall.phases.values()), axis=0)
    longest = float(np.max(whole - waterfall.phases["turnaround"]))
    return min(float(np.max(whole)), 1.3 * longest) * 1.02 if longest else float(np.max(whole, initial=1.0))


def _draw_phases(axes: Axes, waterfall: Waterfall, places: NDArray[Any]) -> None:
    reached = np.zeros(len(places), dtype=np.int64)
    amounts = DurationAxis(_longest_ns(waterfall))
    for name, (color, hatch, label) in _PHASES.items():
        lengths = waterfall.phases[name]
        if lengths.any():
            axes.barh(
                places, amounts.of(lengths), left=amounts.of(reached), height=0.8, color=color, hatch=hatch,
                edgecolor="white", linewidth=0.3, label=label,
            )  # fmt: skip
        reached = reached + lengths
    missing = ~waterfall.has_status
    if missing.any():
        _draw_open(axes, places[missing], waterfall.open_ns[missing], amounts, len(places))
    axes.set_xlabel(f"{amounts.unit} since the command")
    axes.set_xlim(0, amounts.at(_longest_ns(waterfall)))
    axes.tick_params(axis="y", left=False, labelleft=False)


def _draw_open(axes: Axes, places: NDArray[Any], open_ns: NDArray[Any], amounts: DurationAxis, row_count: int) -> None:
    """Draws commands without a status as frames, each with the time that it was in flight: it may be off the axis."""
    axes.barh(
        places, amounts.of(open_ns), height=0.8, facecolor="none", edgecolor=style.VERMILLION, linestyle="dashed",
        linewidth=0.9, label="no status: in flight", zorder=3,
    )  # fmt: skip
    # rows that are nearer to each other than the height of a text share one, that of the longest
    near = max(1, round(row_count / _TEXTS))
    runs = np.split(np.arange(len(places)), np.flatnonzero(np.diff(places) >= near) + 1)
    for run in runs:
        place, length_ns = places[run].mean(), int(open_ns[run].max())
        axes.text(
            0.99, place, f"no status, in flight {duration(length_ns)}", transform=axes.get_yaxis_transform(),
            ha="right", va="center", fontsize=6.5, color=style.BLACK,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
        )  # fmt: skip


def _size(waterfall: Waterfall, row: int) -> str:
    amount = waterfall.sizes[row]
    return size(amount) if amount else ""


def prepare(trace: TraceTables, view: View, detail: Detail) -> Waterfall:
    """The rows of a view; ``detail`` has no effect."""
    return compute(trace.cycles, waits.of_trace(trace.table), view)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    view=view_of_data_commands,
    how_to_read="A row is a read or write: when it was in flight on the left, its phases on the right. "
    "Look for the colour that grows.",
    tables=with_events(),
    pictures=whole_session("Commands"),
    place=5,
)
