"""The waterfall of cycles: a row a task, on the left when it was outstanding, on the right where its time went."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from iscsitrace.analysis.curves.cycles import Waterfall
from iscsitrace.plots import style
from iscsitrace.plots.scales import DurationAxis, TimeAxis, size

_PHASES = {
    # phase: colour, hatch, label
    "request": (style.SKY, "", "request: command to first data"),
    "grant": (style.PURPLE, "\\\\", "grant: command to first R2T"),
    "transfer": (style.BLUE, "", "transfer: first to last data"),
    "service": (style.ORANGE, "//", "service: last data of a write to status"),
    "status_wait": (style.VERMILLION, "xx", "status wait: last data of a read to status"),
    "turnaround": (style.PALE, "..", "turnaround: status to next command"),
}
_LABEL_LIMIT = 40


def draw(figure: Figure, waterfall: Waterfall) -> None:
    """Both panels, one row a cycle, the first on top."""
    when, where = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2.4))
    places = np.arange(len(waterfall.cycles))
    time = TimeAxis(waterfall.view)
    for operation in dict.fromkeys(waterfall.operations):
        chosen = np.array([each == operation for each in waterfall.operations])
        starts = time.of(waterfall.starts_ns[chosen])
        ends = time.of((waterfall.starts_ns + waterfall.latencies_ns)[chosen])
        color, marker = style.operation_mark(operation)
        when.hlines(places[chosen], starts, ends, color=color, linewidth=2.5)
        label = f"{operation} outstanding"
        when.plot(starts, places[chosen], linestyle="none", marker=marker, markersize=3, color=color, label=label)
    time.apply(when)
    _draw_phases(where, waterfall, places)
    is_sparse = len(places) <= _LABEL_LIMIT
    shown = places if is_sparse else places[:: -(-len(places) // _LABEL_LIMIT)]
    names = [f"{waterfall.cycles[row]}  {waterfall.operations[row]} {_size(waterfall, row)}".rstrip() for row in shown]
    when.set_yticks(shown, names, fontsize=7 if is_sparse else 6)
    when.set_ylim(len(places) - 0.4, -0.6)
    style.legend(when, when, columns=1)
    style.legend(where, where, columns=3)


def notes(waterfall: Waterfall) -> list[str]:
    """What the waterfall leaves out."""
    found = []
    if len(waterfall.cycles) < waterfall.cycle_count:
        each = -(-waterfall.cycle_count // len(waterfall.cycles))
        found.append(
            f"{waterfall.cycle_count:,} tasks: a row shows the slowest of {each} neighbours; zoom for each one"
        )
    if not waterfall.has_status.all():
        found.append(
            f"{int((~waterfall.has_status).sum())} of the tasks shown have no status: their bars are what is known"
        )
    return found


def title(waterfall: Waterfall) -> str:
    """What the waterfall shows."""
    return "Where the time of each task went"


def _draw_phases(axes, waterfall: Waterfall, places) -> None:  # type: ignore[no-untyped-def]
    reached = np.zeros(len(places), dtype=np.int64)
    totals = sum(waterfall.phases.values())
    amounts = DurationAxis(float(np.max(totals)))
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
        axes.plot(
            amounts.of(reached[missing]), places[missing], linestyle="none", marker="x", color=style.BLACK,
            label="no status captured",
        )  # fmt: skip
    axes.set_xlabel(f"{amounts.unit} since the command")
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", left=False, labelleft=False)


def _size(waterfall: Waterfall, row: int) -> str:
    amount = waterfall.sizes[row]
    return size(amount) if amount else ""
