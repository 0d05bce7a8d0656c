"""Commands by SCSI operation: latency and its phases, and I/O sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.distribution import counts, percentiles
from iscsitrace.measure.waits import Waits
from iscsitrace.tables.phases import LATENCY_PHASES
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts


def by_operation(cycles: Table) -> Iterator[tuple[str, Table]]:
    """The cycles of each operation that occurs, the most frequent operation first."""
    return ((operation, part) for operation, part, _ in _operations(cycles))


def _operations(cycles: Table) -> Iterator[tuple[str, Table, NDArray[np.intp]]]:
    """The same, with their rows."""
    operation = cycles.raw("operation")
    count = np.bincount(operation)
    for code in np.argsort(-count, kind="stable")[: np.count_nonzero(count)].tolist():
        rows = np.flatnonzero(operation == code)
        part = cycles.select(rows)
        yield str(part["operation"][0] or "unknown"), part, rows


def latencies(cycles: Table, waited: Waits) -> list[dict[str, Any]]:
    """Per operation: number of commands, and ``n p50 p95 p99 max`` of latency and phases in nanoseconds.

    ``waited`` are the waits of the cycles: a command without a status ranks above all with one.
    """
    return [
        {
            "operation": operation,
            "cycle_count": len(part),
            "complete_cycle_count": int(part.raw("is_complete").sum()),
            "latency_ns": waited.select(rows).percentiles,
            **{phase: percentiles(part[phase]) for phase in (*LATENCY_PHASES, "ack_ns", "turnaround_ns")},
        }
        for operation, part, rows in _operations(cycles)
    ]


def without_status(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """For rows of :func:`latencies`: which percentiles are not of all commands."""
    for row in rows:
        found, noun = row["latency_ns"], f"{row['operation']} command"
        if of := amounts.part_of(found["n"], row["cycle_count"], f"{noun}s", "have no status"):
            yield f"Percentiles of {of}."
        if open_count := found.get("open_count"):
            rank = "ranks" if open_count == 1 else "rank"
            yield f"{amounts.count(open_count, noun)} without a status {rank} above all others: > is a lower bound."


def block_sizes(cycles: Table) -> list[dict[str, Any]]:
    """Per operation that moves data: number of commands of each I/O size (Expected Data Transfer Length)."""
    return [
        {"operation": operation, "bytes": size, "cycle_count": count}
        for operation, part in by_operation(cycles)
        for size, count in counts(part["bytes"]).items()
        if size
    ]


@dataclass(frozen=True)
class Sizes:
    """The I/O sizes of one operation: those with the most commands, and the sums of the others."""

    shown: list[Mapping[str, Any]]
    other_count: int
    other_cycle_count: int


def largest_counts(rows: Iterable[Mapping[str, Any]], limit: int) -> dict[str, Sizes]:
    """By operation, of rows of :func:`block_sizes`: the ``limit`` sizes with the most commands, then the smaller."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["operation"], []).append(row)
    found = {}
    for operation, each in by_name.items():
        ordered = sorted(each, key=lambda row: (-row["cycle_count"], row["bytes"]))
        rest = ordered[limit:]
        found[operation] = Sizes(ordered[:limit], len(rest), sum(row["cycle_count"] for row in rest))
    return found
