"""The phases of a command: differences of its timestamps (docs/method.md, section 3).

Pure functions of columns; a phase is null where one of its timestamps is. The phases of a row that has them all
add up exactly to its latency, and with the turnaround to its period. Nothing is estimated here. No time is negative:
where the clock runs backwards within a command, as several capture queues make it, its phases are null, and so is a
latency that would be negative.

    read            command --request--> first data --transfer--> last data --status_wait--> status
    write with R2T  command --grant----> first R2T  --transfer--> last data --service------> status
    write without   command ------------ transfer --------------> last data --service------> status
    no data         command --request----------------------------------------------------> status
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ma

from iscsitrace.tables.schema import DERIVED_CYCLE_COLUMNS, Column
from iscsitrace.tables.table import Array, Table

_NULL = np.iinfo(np.int64).min


class Instants(NamedTuple):
    """Instants or times, and which of them are null: a masked array at each step takes ten times as long."""

    data: Array
    is_null: Array


def _instants(cycles: Table, name: str) -> Instants:
    mask = cycles.mask(name)
    return Instants(cycles.raw(name), np.zeros(len(cycles), dtype=bool) if mask is None else mask)


def _nothing(cycles: Table) -> Instants:
    return Instants(np.full(len(cycles), _NULL, dtype=np.int64), np.ones(len(cycles), dtype=bool))


def _choose(condition: Array, when: Instants, otherwise: Instants) -> Instants:
    return Instants(
        np.where(condition, when.data, otherwise.data), np.where(condition, when.is_null, otherwise.is_null)
    )


def _difference(later: Instants, earlier: Instants) -> Instants:
    is_null = later.is_null | earlier.is_null
    data = np.where(is_null, 0, later.data) - np.where(is_null, 0, earlier.data)
    return Instants(np.where(is_null, _NULL, data), is_null)


def _no_less_than_0(found: Instants) -> Instants:
    return _without(found, found.data < 0)


def _without(found: Instants, rows: Array) -> Instants:
    return Instants(np.where(rows, _NULL, found.data), found.is_null | rows)


def _kinds(cycles: Table) -> tuple[Array, Array, Array]:
    """Masks of the rows: without data, reads (and bidirectional commands), writes; a row is in at most one."""
    no_data = (
        (cycles.raw("data_pdu_count") == 0)
        & (cycles.raw("immediate_bytes") == 0)
        & (cycles.raw("r2t_count") == 0)
        & ~cycles.raw("has_capture_gap")  # data that is missing from the capture was transferred all the same
    )
    is_read = cycles.raw("is_read") & ~no_data
    return no_data, is_read, cycles.raw("is_write") & ~is_read & ~no_data


def _last_data_of_write(cycles: Table) -> Instants:
    """Completion of a write's last data byte, which may be immediate data in the command."""
    last, command_last = _instants(cycles, "data_last_ns"), _instants(cycles, "command_last_ns")
    has_data_out, has_immediate = cycles.raw("data_pdu_count") > 0, cycles.raw("immediate_bytes") > 0
    later = Instants(np.maximum(last.data, command_last.data), last.is_null | command_last.is_null)
    alone = _choose(has_data_out, last, _choose(has_immediate, command_last, _nothing(cycles)))
    return _choose(has_data_out & has_immediate, later, alone)


def _start_of_write(cycles: Table) -> Instants:
    has_r2t = cycles.raw("r2t_count") > 0
    return _choose(has_r2t, _instants(cycles, "r2t_first_ns"), _instants(cycles, "command_first_ns"))


def _end_of_write(cycles: Table) -> Instants:
    """The last data byte; null if data requested by R2Ts was not seen: the last byte seen is then not the last."""
    end, start = _last_data_of_write(cycles), _start_of_write(cycles)
    return Instants(end.data, end.is_null | (end.data < start.data))


def _request(cycles: Table) -> Instants:
    no_data, is_read, _ = _kinds(cycles)
    end = _choose(is_read, _instants(cycles, "data_first_ns"), _nothing(cycles))
    end = _choose(no_data, _instants(cycles, "status_ns"), end)
    return _difference(end, _instants(cycles, "command_first_ns"))


def _grant(cycles: Table) -> Instants:
    end = _choose(_kinds(cycles)[2], _instants(cycles, "r2t_first_ns"), _nothing(cycles))
    return _difference(end, _instants(cycles, "command_first_ns"))


def _transfer(cycles: Table) -> Instants:
    _, is_read, is_write = _kinds(cycles)
    read = _difference(_instants(cycles, "data_last_ns"), _instants(cycles, "data_first_ns"))
    write = _difference(_end_of_write(cycles), _start_of_write(cycles))
    return _choose(is_read, read, _choose(is_write, write, _nothing(cycles)))


def _service(cycles: Table) -> Instants:
    wait = _difference(_instants(cycles, "status_ns"), _end_of_write(cycles))
    return _choose(_kinds(cycles)[2], wait, _nothing(cycles))


def _status_wait(cycles: Table) -> Instants:
    wait = _difference(_instants(cycles, "status_ns"), _instants(cycles, "data_last_ns"))
    return _choose(_kinds(cycles)[1], wait, _nothing(cycles))


def _between(earlier: str, later: str) -> Callable[[Table], Instants]:
    return lambda cycles: _no_less_than_0(_difference(_instants(cycles, later), _instants(cycles, earlier)))


_PARTS: dict[str, Callable[[Table], Instants]] = {
    "request_ns": _request,
    "grant_ns": _grant,
    "transfer_ns": _transfer,
    "service_ns": _service,
    "status_wait_ns": _status_wait,
}


def _runs_backwards(cycles: Table) -> Array:
    """Which rows have a part that would be negative, or longer ones than the latency: the split is unknown."""
    parts = [part(cycles) for part in _PARTS.values()]
    latency = _difference(_instants(cycles, "status_ns"), _instants(cycles, "command_first_ns"))
    total = np.sum([np.where(part.is_null, 0, part.data) for part in parts], axis=0)
    is_longer = ~latency.is_null & (total > latency.data)
    return np.asarray(np.logical_or.reduce([is_longer, *(~part.is_null & (part.data < 0) for part in parts)]))


def _part(name: str) -> Callable[[Table], Instants]:
    return lambda cycles: _without(_PARTS[name](cycles), cycles.each(_runs_backwards))


_COMPUTED: dict[str, Callable[[Table], Instants]] = {
    **{name: _part(name) for name in _PARTS},
    # padding and digest of the last data can pass the tap after the ACK of the data
    "ack_ns": _between("data_last_ns", "data_acked_ns"),
    "turnaround_ns": _between("status_ns", "next_command_ns"),
    "latency_ns": _between("command_first_ns", "status_ns"),
    "period_ns": _between("command_first_ns", "next_command_ns"),
}


def _computed(name: str) -> Callable[[Table], Array]:
    def compute(cycles: Table) -> Array:
        found = _COMPUTED[name](cycles)
        return ma.MaskedArray(found.data, mask=found.is_null)

    return compute


DERIVED: dict[str, tuple[Column, Callable[[Table], Array]]] = {
    column.name: (column, _computed(column.name)) for column in DERIVED_CYCLE_COLUMNS
}
"""Every derived column of ``cycles``: its declaration, and the function that computes it from the table."""

LATENCY_PHASES = tuple(_PARTS)
"""The phases that add up to ``latency_ns``; a phase that a row does not have counts as 0."""
