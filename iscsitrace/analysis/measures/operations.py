"""Commands by SCSI operation: latency and its phases, and I/O sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from iscsitrace.analysis.measures.distribution import counts, percentiles
from iscsitrace.tables.phases import LATENCY_PHASES
from iscsitrace.tables.table import Table


def by_operation(cycles: Table) -> Iterator[tuple[str, Table]]:
    """The cycles of each operation that occurs, the most frequent operation first."""
    _, where, count = np.unique(cycles.raw("operation"), return_inverse=True, return_counts=True)
    for place in np.argsort(-count, kind="stable").tolist():
        part = cycles.select(where == place)
        yield str(part["operation"][0] or "unknown"), part


def latencies(cycles: Table) -> list[dict[str, Any]]:
    """Per operation: number of commands, and ``p50 p95 p99 max`` of latency and phases in nanoseconds."""
    return [
        {
            "operation": operation,
            "cycle_count": len(part),
            "complete_cycle_count": int(part.raw("is_complete").sum()),
            "latency_ns": percentiles(part["latency_ns"]),
            **{phase: percentiles(part[phase]) for phase in (*LATENCY_PHASES, "ack_ns", "turnaround_ns")},
        }
        for operation, part in by_operation(cycles)
    ]


def block_sizes(cycles: Table) -> list[dict[str, Any]]:
    """Per operation that moves data: number of commands of each I/O size (Expected Data Transfer Length)."""
    return [
        {"operation": operation, "bytes": size, "cycle_count": count}
        for operation, part in by_operation(cycles)
        for size, count in counts(part["bytes"]).items()
        if size
    ]
