"""Throughput: bytes, commands and rates of reads and writes, per session and in total.

Rates are those of the data commands, over the *active time* in which at least one of them was in flight: the union of
command to end. So neither idle gaps nor the scan of the device reduce them, but a command without a status does. Task
management and NOPs are no commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.distribution import counts, percentiles
from iscsitrace.measure.intervals import union_lengths
from iscsitrace.measure.waits import Waits
from iscsitrace.tables.nulls import known, numbers_of
from iscsitrace.tables.numbers import first_rows, order_of
from iscsitrace.tables.table import Table

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class Throughput:
    """Payload and number of all commands of one session, and rates; ``session`` None: of the whole trace."""

    session: int | None = None
    cycle_count: int = 0
    complete_cycle_count: int = 0
    read_cycle_count: int = 0
    write_cycle_count: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    active_ns: int = 0
    iops: float | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    queue_depth_max: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


def measure(cycles: Table, waited: Waits) -> list[Throughput]:
    """Throughput of each session in order, the total last; ``waited`` are the waits of these commands."""
    payloads, ends_ns = payload(cycles), waited.ends_ns(cycles)
    found = _of_each(cycles, numbers_of(cycles, "session"), payloads, ends_ns)
    total = found[0] if len(found) == 1 else Throughput()
    if len(found) > 1:
        (total,) = _of_each(cycles, np.zeros(len(cycles), dtype=np.int64), payloads, ends_ns)
    return [*(each for each in found if each.session is not None and each.session >= 0), replace(total, session=None)]


def shares(rates: Mapping[str, Any], yardsticks: Mapping[str, float]) -> dict[str, float | None]:
    """Rates of reads and of writes, as of `Throughput`, / each yardstick in bytes/s: ``read_share_of_line`` ...; None
    where there is no rate.

    The directions are apart: a line carries as much the other way.
    """
    return {
        f"{word}_share_of_{name}": None if rates[f"{word}_bytes_per_s"] is None else rates[f"{word}_bytes_per_s"] / each
        for name, each in yardsticks.items()
        for word in ("read", "write")
    }


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


def _of_each(
    cycles: Table, session: NDArray[Any], payloads: Sequence[NDArray[Any]], ends_ns: NDArray[Any]
) -> list[Throughput]:
    """Of the commands of each number in ``session``."""
    if not len(cycles):
        return []
    rows = _in_order(session, cycles.raw("command_first_ns"))
    session, begins, ends = session[rows], cycles.raw("command_first_ns")[rows], ends_ns[rows]
    firsts = first_rows(session)
    numbers = session[firsts]

    def sums(values: NDArray[Any]) -> NDArray[Any]:
        return np.add.reduceat(values[rows], firsts, dtype=np.int64)

    has_data, is_io = cycles.raw("data_bytes") > 0, cycles.each(is_data_command)
    read, written = map(sums, payloads)
    active_ns = np.zeros(len(numbers), dtype=np.int64)
    is_active = is_io[rows]
    if is_active.any():
        active = session[is_active]
        active_ns[np.isin(numbers, active)] = union_lengths(begins[is_active], ends[is_active], first_rows(active))
    counts_of = {
        "session": numbers,
        "cycle_count": sums(np.ones(len(cycles), dtype=bool)),
        "complete_cycle_count": sums(cycles.raw("is_complete")),
        "read_cycle_count": sums(cycles.raw("is_read") & has_data),
        "write_cycle_count": sums(cycles.raw("is_write") & has_data),
        "read_bytes": read,
        "write_bytes": written,
        "active_ns": active_ns,
        "queue_depth_max": np.maximum.reduceat(cycles.raw("queue_depth")[rows], firsts),
    }
    own_read, own_written = (sums(np.where(is_io, each, 0)) for each in payloads)
    per_s = {
        "iops": sums(is_io & known(cycles, "status_ns")),
        "read_bytes_per_s": own_read,
        "write_bytes_per_s": own_written,
    }
    columns = {name: values.tolist() for name, values in counts_of.items()}
    columns |= {name: _rates(values.tolist(), active_ns.tolist()) for name, values in per_s.items()}
    return [Throughput(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _in_order(session: NDArray[Any], begins: NDArray[Any]) -> NDArray[Any] | slice:
    """The rows in order of their sessions and of time; mostly they are."""
    is_next = (session[1:] > session[:-1]) | ((session[1:] == session[:-1]) & (begins[1:] >= begins[:-1]))
    if is_next.all():
        return slice(None)
    in_time = np.argsort(begins, kind="stable")
    return np.asarray(in_time[order_of(session[in_time])])


def _rates(amounts: list[int], active_ns: list[int]) -> list[float | None]:
    """Per second of active time; in Python's numbers, because int64 ends at 9 GB."""
    return [
        amount * NANOSECONDS / own_ns if own_ns else None for amount, own_ns in zip(amounts, active_ns, strict=True)
    ]


def queue_depths(cycles: Table) -> dict[str, Any]:
    """Queue depth at issue: ``n p50 p95 p99 max``, and the number of commands issued at each depth."""
    return {**percentiles(cycles["queue_depth"]), "cycles_by_queue_depth": counts(cycles["queue_depth"])}
