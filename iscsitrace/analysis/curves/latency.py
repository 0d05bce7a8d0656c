"""Latencies of SCSI commands: over time, as a distribution, and by I/O size."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from iscsitrace.analysis.curves.decimation import Detail, even_edges, extremes
from iscsitrace.analysis.curves.marks import Array, Line
from iscsitrace.analysis.curves.view import View, picked_cycles
from iscsitrace.analysis.measures.waits import UNKNOWN, Waits
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table

BINS_TIME, BINS_LATENCY = (10, 80), (10, 40)
"""Least and most bins of the heat map; more commands make more bins."""
CDF_POINTS = 1000
BLOCK_SIZES = 12
OPERATIONS = 5


@dataclass(frozen=True)
class Latency:
    """Commands of the view by latency, and those without a status; all in nanoseconds."""

    view: View
    over_time: dict[str, Line]
    """By operation, the most frequent first: time of the command, and latency."""
    is_decimated: bool
    distribution: dict[str, tuple[Array, Array]]
    """By operation: sorted latencies, and the share of commands that took no longer: of those, too, that never did."""
    heat: Array
    """Number of commands, (latencies, times)."""
    time_edges_ns: Array
    latency_edges_ns: Array
    block_sizes: dict[str, dict[int, dict[str, int]]]
    """By operation and size in bytes: ``n p50 p95 p99 max``, without those for which there are too few commands;
    ``open_count`` where commands without a status are among them.
    """
    task_count: int
    """Commands with a latency."""
    without_status: Line = field(default_factory=Line)
    """Commands without a status: when each was sent, and how long it waited."""
    unsure_count: int = 0
    """Commands with a status whose latency is unsure."""


def prepare(cycles: Table, waited: Waits, view: View, detail: Detail | None = None) -> Latency:
    """The latencies of a view; InputInvalid where it has none. ``waited`` are the waits of all cycles."""
    detail = detail or Detail()
    starts = cycles.raw("command_first_ns")
    is_in_view = picked_cycles(cycles, view) & view.covers(starts)
    in_view, waited = cycles.select(is_in_view), waited.select(is_in_view)
    is_known = ~waited.is_open & (waited.least_ns != UNKNOWN)
    known = in_view.select(is_known)
    if not len(known):
        raise InputInvalid("nothing to draw: no SCSI command of the view has a status")
    times, values = known.raw("command_first_ns"), waited.least_ns[is_known]
    edges = detail.edges(len(known), view.start_ns, view.end_ns)
    operations = _operations(in_view)
    with_latency = {name: chosen[is_known] for name, chosen in operations.items() if (chosen & is_known).any()}
    latency_edges = _latency_edges(values, int(np.clip(len(known) // 6, *BINS_LATENCY)))
    time_edges = even_edges(view.start_ns, view.end_ns + 1, int(np.clip(len(known) // 3, *BINS_TIME)))
    after = times - view.start_ns, time_edges - view.start_ns
    heat, _, _ = np.histogram2d(values, after[0], bins=(latency_edges, after[1]))
    return Latency(
        view=view,
        over_time={name: _points(times[chosen], values[chosen], edges) for name, chosen in with_latency.items()},
        is_decimated=edges is not None,
        distribution=_distributions(operations, waited),
        heat=heat.astype(np.int64),
        time_edges_ns=time_edges,
        latency_edges_ns=latency_edges,
        block_sizes=_block_sizes(in_view, operations, waited),
        task_count=len(known),
        without_status=_without_status(in_view, waited),
        unsure_count=int((waited.least_ns == UNKNOWN).sum()),
    )


def _without_status(cycles: Table, waited: Waits) -> Line:
    starts, waits_ns = cycles.raw("command_first_ns")[waited.is_open], waited.least_ns[waited.is_open]
    order = np.argsort(starts, kind="stable")
    return Line(starts[order], waits_ns[order])


def _distributions(operations: dict[str, Array], waited: Waits) -> dict[str, tuple[Array, Array]]:
    found = {}
    for name, chosen in operations.items():
        own = waited.select(chosen)
        if len(own.latencies_ns):
            found[name] = _cumulative(own.latencies_ns, len(own.slowest_ns))
    return found


def _operations(cycles: Table) -> dict[str, Array]:
    """The rows of each operation, the most frequent first; those beyond OPERATIONS together as ``other``."""
    codes = cycles.raw("operation")
    words = cycles.words_by_code("operation")
    each, count = np.unique(codes, return_counts=True)
    order = each[np.argsort(-count, kind="stable")].tolist()
    found = {str(words[code] or "unknown"): codes == code for code in order[:OPERATIONS]}
    if len(order) > OPERATIONS:
        found["other"] = np.isin(codes, order[OPERATIONS:])
    return found


def _points(times_ns: Array, values: Array, edges_ns: Array | None) -> Line:
    if edges_ns is None:
        return Line(times_ns, values)
    kept = extremes(times_ns, values, edges_ns)
    return Line(times_ns[kept], values[kept])


def _cumulative(values: Array, open_count: int = 0) -> tuple[Array, Array]:
    """Sorted latencies and the share that is no greater: up to CDF_POINTS of them, with the least and the greatest.

    ``open_count`` more have no status: they are greater than all.
    """
    ordered = np.sort(values)
    kept = np.unique(np.linspace(0, len(ordered) - 1, CDF_POINTS).astype(np.intp))
    return ordered[kept], (kept + 1) / (len(ordered) + open_count)


def _latency_edges(values: Array, count: int) -> Array:
    """Bins that grow by a constant factor, from the least to the greatest latency."""
    low, high = max(1, int(values.min())), max(2, int(values.max()))
    if high < 2 * low:
        low, high = low // 2, 2 * high
    edges = np.geomspace(low, high, count + 1)
    edges[0], edges[-1] = min(low, int(values.min())), high
    return edges


def _block_sizes(cycles: Table, operations: dict[str, Array], waited: Waits) -> dict[str, dict[int, dict[str, int]]]:
    """Percentiles by operation and I/O size, for the commonest sizes; of reads and writes if there are any."""
    sizes = np.ma.filled(np.ma.asarray(cycles["bytes"]), 0)
    found: dict[str, dict[int, dict[str, int]]] = {}
    movers = [name for name in operations if name in ("read", "write")]
    for name in movers or operations:
        chosen = operations[name]
        each, count = np.unique(sizes[chosen & (sizes > 0)], return_counts=True)
        frequent = sorted(each[np.argsort(-count, kind="stable")][:BLOCK_SIZES].tolist())
        for size in frequent:
            of_size = waited.select(chosen & (sizes == size)).percentiles
            known = {key: value for key, value in of_size.items() if value is not None}
            if known["n"]:
                found.setdefault(name, {})[size] = known
    return found
