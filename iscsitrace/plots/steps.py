"""Equal steps of a plot over time, filled from whole cycles.

A read at queue depth 1 puts its data on the line once a cycle. Steps about as long as a cycle would beat with it: one
has two bursts, the next has none. So sums are taken between boundaries of cycles, and spread evenly over the steps:

    cycles      |---##|---##|---##|---##|      # data on the line
    steps       |   |   |   |   |   |   |      each has the average of the cycles it touches

A pause or a command of RESOLVED steps or more is seen as such, and is not averaged: there the boundaries are those of
bursts, a few steps apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.plots.marks import Array, Spans, even_edges
from iscsitrace.plots.view import View, ends_ns
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.table import Table

STEPS = 200
RESOLVED = 10
"""Steps from which on a pause, or the course of a command, can be seen in a plot."""
_NEAR = 1
_FAR = 4
"""Within so many steps a burst begins whose silence before it is the longest: a boundary in a long command."""


def edges(view: View, count: int = STEPS) -> Array:
    """The edges of the steps of a view."""
    return even_edges(view.start_ns, view.end_ns, count)


def of_cycles(cycles: Table, stretches: Table, edges_ns: Array) -> Array:
    """The boundaries of the data commands among ``cycles``; ``stretches`` is their time breakdown."""
    data, transfer = _data_and_transfer(cycles, stretches)
    return boundaries(data, transfer, edges_ns)


def of_connections(cycles: Table, budget: Table, connections: Sequence[int], edges_ns: Array) -> dict[int, Array]:
    """The boundaries of the data commands of each connection, by its number."""
    data, transfer = _data_and_transfer(cycles, budget)
    commands = grouped(cycles.raw("connection")[is_data_command(cycles)])
    bursts = grouped(budget.raw("connection")[_is_transfer(budget)])
    none = np.empty(0, dtype=np.intp)
    return {
        number: boundaries(_of(data, commands.get(number, none)), _of(transfer, bursts.get(number, none)), edges_ns)
        for number in connections
    }


def _of(spans: Spans, places: Array) -> Spans:
    return Spans(spans.starts_ns[places], spans.ends_ns[places])


def _is_transfer(stretches: Table) -> Array:
    found: Array = stretches.raw("part") == PARTS.index("transfer")
    return found


def _data_and_transfer(cycles: Table, stretches: Table) -> tuple[Spans, Spans]:
    data, transfer = cycles.select(is_data_command(cycles)), stretches.select(_is_transfer(stretches))
    return (
        Spans(data.raw("command_first_ns"), ends_ns(data)),
        Spans(transfer.raw("time_first_ns"), transfer.raw("time_last_ns")),
    )


def boundaries(commands: Spans, bursts: Spans, edges_ns: Array) -> Array:
    """Increasing instants, from the first edge or before it to the last or after it.

    ``commands`` last from command to status; ``bursts`` are the stretches with data on the line, in order of time.
    """
    step_ns = int(edges_ns[1] - edges_ns[0])
    if not len(commands):
        return edges_ns
    starts, ends = _generations(commands)
    following = np.append(starts[1:], max(ends[-1], edges_ns[-1]) + RESOLVED * step_ns + 1)
    # a short wait for the next command belongs to the cycle
    ends = np.where(following - ends < RESOLVED * step_ns, following, ends)
    found = [starts, ends]
    is_long = ends - starts >= RESOLVED * step_ns
    for start, end in zip(starts[is_long].tolist(), ends[is_long].tolist(), strict=True):
        found.append(_within(start, end, bursts, step_ns))
    # no cycle covers these
    place = np.searchsorted(starts, edges_ns, side="right") - 1
    found.append(edges_ns[(place < 0) | (edges_ns >= ends[place])])
    every = np.sort(np.concatenate(found))
    every = every[np.append(True, np.diff(every) > 0)]
    first, last = np.searchsorted(every, edges_ns[0], side="right") - 1, np.searchsorted(every, edges_ns[-1])
    found_ns: Array = every[max(0, first) : last + 1].astype(np.int64)
    return found_ns


def spread(sums: Array, boundaries_ns: Array, edges_ns: Array) -> Array:
    """Sums between boundaries, along the last axis, as sums of steps: each counts evenly over its time."""
    reached = np.concatenate([np.zeros((*sums.shape[:-1], 1)), np.cumsum(sums, axis=-1)], axis=-1)
    # a float cannot hold nanoseconds since 1970 exactly
    at, known = edges_ns - edges_ns[0], boundaries_ns - edges_ns[0]
    rows = reached.reshape(-1, reached.shape[-1])
    found: Array = np.diff([np.interp(at, known, row) for row in rows])
    return found.reshape(*sums.shape[:-1], len(edges_ns) - 1)


def _generations(commands: Spans) -> tuple[Array, Array]:
    """Commands one after another: each is the first that was sent after the status of the one before.

    Those in flight beside them, at a greater queue depth, belong to the same cycle.
    """
    order = np.argsort(commands.starts_ns, kind="stable")
    starts, ends = commands.starts_ns[order], np.maximum(commands.ends_ns[order], commands.starts_ns[order])
    after = np.maximum(np.searchsorted(starts, ends), np.arange(len(starts)) + 1).tolist()
    chosen = [0]
    while (following := after[chosen[-1]]) < len(starts):
        chosen.append(following)
    # until the last status of a generation
    return starts[chosen], np.maximum.reduceat(ends, chosen)


def _within(start_ns: int, end_ns: int, bursts: Spans, step_ns: int) -> Array:
    """Boundaries within a long command: where bursts begin, after the longest silences, and in long silences."""
    first, last = np.searchsorted(bursts.starts_ns, [start_ns, end_ns])
    begins = bursts.starts_ns[first:last]
    before = np.concatenate([[start_ns], bursts.ends_ns[first : max(first, last - 1)]])[: len(begins)]
    silences = begins - before
    found, at = [], start_ns
    while at + _NEAR * step_ns < end_ns:
        low, high = np.searchsorted(begins, [at + _NEAR * step_ns, at + _FAR * step_ns])
        at = int(begins[low + silences[low:high].argmax()]) if low < high else at + _NEAR * step_ns
        found.append(at)
    return np.array(found, dtype=np.int64)
