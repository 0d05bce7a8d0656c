"""Connections of a session over time: how many, throughput, latency and how even they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import connection_counts
from iscsitrace.measure.connection_counts import ConnectionCounts
from iscsitrace.measure.data_commands import is_whole_transfer
from iscsitrace.plots import style
from iscsitrace.plots.kind import Examples, Kind, view_of_data_commands, with_events
from iscsitrace.plots.marks import Array, Detail, even_edges
from iscsitrace.plots.style import ByteAxis, TimeAxis, duration
from iscsitrace.plots.view import View, Zoom, picked_cycles
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables

_FEWEST, _STEPS = 12, 120
_COMMANDS = 4
"""Median latencies that a step of many is long: else it has a part of each connection's commands only."""
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Connections:
    """A value per step; ``edges_ns`` has one value more."""

    view: View
    changes_ns: Array
    """When the number of connections in use changes, and the end."""
    counts: Array
    """The number from each change on: one value less."""
    edges_ns: Array
    bytes_per_s: Array
    resent_share: Array | None
    """Retransmitted payload / data of the commands; NaN without any; None: retransmissions were not read."""
    median_ns: Array
    high_ns: Array
    """Median and 95th percentile of the latencies of the commands that ended in the step; NaN without any."""
    jain: Array
    """Jain's fairness index of the bytes of those in use for the whole step; NaN of fewer than two."""
    measured: ConnectionCounts | None
    """None where the number does not change."""


def compute(cycles: Table, resent: Table | None, view: View) -> Connections:
    """The steps of a view; InputInvalid where no read or write ends in it."""
    picked = cycles.select(picked_cycles(cycles, view) & cycles.each(is_whole_transfer))
    if not len(picked):
        raise InputInvalid("nothing to draw: no complete read or write in the view")
    starts, ends = picked.raw("command_first_ns"), picked.raw("status_ns")
    changes_ns, counts, spans = _in_use(picked)
    edges_ns = even_edges(view.start_ns, view.end_ns, _steps(view, np.median(ends - starts)))
    step = np.clip(np.searchsorted(edges_ns, ends, side="left") - 1, 0, len(edges_ns) - 2)
    sizes, count = picked.raw("data_bytes").astype(np.float64), len(edges_ns) - 1
    moved = np.bincount(step, sizes, count)
    by_step = grouped(step)
    median_ns, high_ns = np.full(count, np.nan), np.full(count, np.nan)
    for place, rows in by_step.items():
        lasted = np.sort((ends - starts)[rows])
        median_ns[place], high_ns[place] = (lasted[int(np.ceil(q * len(lasted))) - 1] for q in (0.5, 0.95))
    sessions = np.unique(picked.raw("session"))
    return Connections(
        view=view,
        changes_ns=changes_ns,
        counts=counts,
        edges_ns=edges_ns,
        bytes_per_s=moved * _SECOND_NS / np.diff(edges_ns),
        resent_share=None if resent is None else _resent(resent, view, edges_ns, moved),
        median_ns=median_ns,
        high_ns=high_ns,
        jain=_jain(picked.raw("connection"), step, sizes, edges_ns, spans),
        measured=connection_counts.of_session(int(sessions[0]), picked) if len(sessions) == 1 else None,
    )


def _steps(view: View, latency_ns: float) -> int:
    return int(np.clip((view.end_ns - view.start_ns) / max(_COMMANDS * latency_ns, 1), _FEWEST, _STEPS))


def _in_use(picked: Table) -> tuple[Array, Array, dict[int, tuple[int, int]]]:
    """When the number of connections in use changes, the numbers between, and from when to when each is in use."""
    starts, ends = picked.raw("command_first_ns"), picked.raw("status_ns")
    spans = {
        number: (int(starts[rows].min()), int(ends[rows].max()))
        for number, rows in grouped(picked.raw("connection")).items()
    }
    firsts, lasts = np.sort(np.array([*spans.values()], dtype=np.int64), axis=0).T
    changes = np.unique(np.concatenate([firsts, lasts]))
    counts = np.searchsorted(firsts, changes[:-1], side="right") - np.searchsorted(lasts, changes[:-1], side="right")
    return changes, counts, spans


def _resent(resent: Table, view: View, edges_ns: Array, moved: Array) -> Array:
    is_own = np.isin(resent.raw("connection"), view.connections) & view.covers(resent.raw("time_ns"))
    again, _ = np.histogram(resent.raw("time_ns")[is_own], edges_ns, weights=resent.raw("payload_bytes")[is_own])
    return np.where(moved > 0, again / np.maximum(moved, 1), np.nan)


def _jain(owners: Array, step: Array, sizes: Array, edges_ns: Array, spans: dict[int, tuple[int, int]]) -> Array:
    """Jain's index of each step."""
    count = len(edges_ns) - 1
    sums, squares, members = np.zeros(count), np.zeros(count), np.zeros(count)
    rows = grouped(owners)
    for number, (first_ns, last_ns) in spans.items():
        own = rows[number]
        carried = np.bincount(step[own], sizes[own], count)
        is_there = (edges_ns[:-1] >= first_ns) & (edges_ns[1:] <= last_ns)
        sums += carried * is_there
        squares += carried**2 * is_there
        members += is_there
    has_several = (members > 1) & (squares > 0)
    return np.where(has_several, sums**2 / np.where(has_several, members * squares, 1), np.nan)


# --- drawing


def draw(figure: Figure, found: Connections) -> None:
    """Draws the four panels."""
    number, rate, latency, even = figure.subplots(4, 1, sharex=True, height_ratios=(1.4, 1.4, 1, 1))
    time = TimeAxis(found.view)
    edges = time.of(found.edges_ns)
    number.plot(
        time.of(found.changes_ns), [*found.counts, *found.counts[-1:]], color=style.BLACK, linewidth=1.4,
        drawstyle="steps-post", label="connections in use",
    )  # fmt: skip
    number.set_ylabel("connections")
    number.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    number.set_ylim(0, max(1, int(found.counts.max(initial=1))) * 1.12)
    amounts_axis = ByteAxis(float(found.bytes_per_s.max()))
    rate.stairs(
        amounts_axis.of(found.bytes_per_s), edges, fill=True, color=style.BLUE, alpha=0.5, linewidth=0,
        label="throughput of reads and writes",
    )  # fmt: skip
    for place, stage in enumerate(found.measured.stages if found.measured else ()):
        rate.plot(
            time.of(np.array([stage.settled_ns, stage.last_ns])),
            [amounts_axis.of(np.array([stage.bytes_per_s]))[0]] * 2,
            color=style.BLACK, linestyle="dashed", linewidth=1.4, label="" if place else "mean of a number",
        )  # fmt: skip
    rate.set_ylabel(f"{amounts_axis.unit}/s")
    rate.set_ylim(bottom=0)
    for values, color, dashes, label in (
        (found.high_ns, style.ORANGE, "dotted", "latency, p95"),
        (found.median_ns, style.GREEN, "solid", "latency, median"),
    ):
        latency.stairs(values / 1e6, edges, baseline=None, color=color, linestyle=dashes, linewidth=1.5, label=label)
    latency.set_ylabel("ms")
    latency.set_ylim(bottom=0)
    if not np.isnan(found.jain).all():
        even.stairs(found.jain, edges, baseline=None, color=style.PURPLE, linewidth=1.4, label="Jain's fairness index")
    if _has_resent(found) and found.resent_share is not None:
        even.stairs(
            found.resent_share, edges, fill=True, color=style.VERMILLION, alpha=0.6, linewidth=0,
            label="share retransmitted",
        )  # fmt: skip
    if np.isnan(found.jain).all() and not _has_resent(found):
        style.write_text(even, "fewer than two connections at a time, and no retransmissions")
    even.set_ylabel("index, share")
    even.set_ylim(0, 1.05)
    time.apply(even)
    for axes in (number, rate, latency):
        axes.tick_params(labelbottom=False)
    style.legend(number, number, rate, latency, even)


def _has_resent(found: Connections) -> bool:
    return found.resent_share is not None and bool(np.nansum(found.resent_share) > 0)


def notes(found: Connections) -> list[str]:
    """The step, and what the numbers of connections bring."""
    step_ns = int(found.edges_ns[1] - found.edges_ns[0])
    lines = [f"each step is {duration(step_ns)}; a command counts in the step in which it ends"]
    if found.measured:
        lines.append(found.measured.sentence)
    return lines


def title(found: Connections) -> str:
    """Names what the panels show."""
    return "Connections, throughput, latency and fairness"


def prepare(trace: TraceTables, view: View, detail: Detail) -> Connections:
    """The curves of a view; ``detail`` has no effect."""
    return compute(trace.cycles, trace.table("retransmissions"), view)


def _pictures(examples: Examples) -> Iterable[tuple[str, Zoom]]:
    """One of the whole session, if its number of connections changes."""
    if examples.has_connection_counts:
        yield "Connections over time", Zoom(session=examples.session, story=examples.story)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="Connections in use, from the first command of each to its last status. The dashed lines of the "
    "throughput are the times with one number of connections, without the commands from before the change. An index "
    "of 1 is even: each connection carries as much.",
    tables=with_events("retransmissions"),
    view=view_of_data_commands,
    pictures=_pictures,
    place=11,
)
