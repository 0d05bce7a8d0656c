"""Throughput: bytes, commands and rates of reads and writes, per session and in total.

Rates are over the *active time*, in which at least one command was in flight: the union of command to status over the
commands that have both. So idle gaps do not reduce them. Task management and NOPs are no commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.distribution import counts, percentiles
from iscsitrace.analysis.measures.intervals import union_length
from iscsitrace.analysis.measures.nulls import numbers_of
from iscsitrace.tables.partition import Partition
from iscsitrace.tables.table import Table

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class Throughput:
    """Payload, commands and rates of one session; ``session`` None: of the whole trace."""

    session: int | None
    cycle_count: int
    complete_cycle_count: int
    read_cycle_count: int
    write_cycle_count: int
    read_bytes: int
    write_bytes: int
    active_ns: int
    iops: float | None
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    queue_depth_max: int | None


def measure(cycles: Table) -> list[Throughput]:
    """Throughput of each session in order, the total last."""
    by_session = Partition(cycles, numbers_of(cycles, "session"))
    return [*(_throughput(by_session.rows(number), number) for number in by_session), _throughput(cycles, None)]


def payload(cycles: Table) -> tuple[NDArray[Any], NDArray[Any]]:
    """Bytes read and bytes written by each command."""
    is_read, is_write = cycles.raw("is_read"), cycles.raw("is_write")
    data_bytes = cycles.raw("data_bytes").astype(np.int64)
    # data_bytes of a bidirectional command has both directions; the bytes sent as Data-Out are known separately
    sent = sum(
        cycles.raw(name).astype(np.int64) for name in ("immediate_bytes", "unsolicited_bytes", "solicited_bytes")
    )
    write_bytes = np.where(is_write & is_read, np.minimum(sent, data_bytes), np.where(is_write, data_bytes, 0))
    read_bytes = np.where(is_read, data_bytes - np.where(is_write, write_bytes, 0), 0)
    return read_bytes, write_bytes


def _throughput(cycles: Table, session: int | None) -> Throughput:
    has_status = ~np.ma.getmaskarray(cycles["status_ns"])
    is_read, is_write = cycles.raw("is_read"), cycles.raw("is_write")
    data_bytes = cycles.raw("data_bytes")
    read_bytes, write_bytes = payload(cycles)
    starts, ends = cycles.raw("command_first_ns")[has_status], cycles.raw("status_ns")[has_status]
    active_ns = union_length(starts, ends)

    def per_s(amount: int) -> float | None:
        return amount * NANOSECONDS / active_ns if active_ns else None

    read, written = int(read_bytes.sum()), int(write_bytes.sum())
    return Throughput(
        session=session,
        cycle_count=len(cycles),
        complete_cycle_count=int(cycles.raw("is_complete").sum()),
        read_cycle_count=int((is_read & (data_bytes > 0)).sum()),
        write_cycle_count=int((is_write & (data_bytes > 0)).sum()),
        read_bytes=read,
        write_bytes=written,
        active_ns=active_ns,
        iops=per_s(int(has_status.sum())),
        read_bytes_per_s=per_s(read),
        write_bytes_per_s=per_s(written),
        queue_depth_max=int(cycles.raw("queue_depth").max()) if len(cycles) else None,
    )


def queue_depths(cycles: Table) -> dict[str, Any]:
    """Queue depth at issue: ``n p50 p95 p99 max``, and the number of commands issued at each depth."""
    return {**percentiles(cycles["queue_depth"]), "cycles_by_queue_depth": counts(cycles["queue_depth"])}
