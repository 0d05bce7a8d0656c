"""Data commands: the SCSI commands that read, write or erase data. All others are non-I/O commands.

What an operation is for stands in the core's table of SCSI commands, which the time breakdown uses too. Every mask is
computed once per table, see `Table.each`; nobody may write into one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import PURPOSES
from iscsitrace.tables.table import NO_WORD, Table


def is_data_command(cycles: Table) -> NDArray[np.bool_]:
    """Which commands read, write or erase data. As in the time breakdown, so does one that was cut off before its
    operation, and an unknown operation that transfers data.
    """
    has_data = (cycles.raw("is_read") | cycles.raw("is_write")) & (cycles.raw("bytes") != 0)
    is_unknown = ~known(cycles, "operation") | (is_operation(cycles, "other") & has_data)
    return np.asarray(is_for(cycles, "data") | is_unknown)


def is_storage_command(cycles: Table) -> NDArray[np.bool_]:
    """Which commands read, write, erase or flush data."""
    return cycles.each(is_data_command) | is_for(cycles, "flush")


def is_transfer(cycles: Table) -> NDArray[np.bool_]:
    """Which commands read or wrote data; non-I/O commands (INQUIRY, TEST UNIT READY) do not."""
    return np.asarray(is_operation(cycles, "read", "write") & (cycles.raw("data_bytes") > 0))


def is_whole_transfer(cycles: Table) -> NDArray[np.bool_]:
    """Which reads and writes of data are complete in the capture."""
    return cycles.each(is_transfer) & cycles.raw("is_complete")


LONG_NS: Final = 1_000_000_000
"""What a user notices. A command that moves no data takes so long where a robot, a motor or a tape moves."""


def is_long_work(cycles: Table) -> NDArray[np.bool_]:
    """Which commands that move no data succeeded, and took long: MOVE MEDIUM, REWIND, SPACE, START STOP UNIT, ..."""
    is_other = known(cycles, "operation") & ~cycles.each(is_storage_command)
    is_good = known(cycles, "status_ns") & (cycles.raw("status") == 0)
    took = cycles.raw("status_ns").astype(np.int64) - cycles.raw("command_first_ns").astype(np.int64)
    return np.asarray(is_other & is_good & (took >= LONG_NS))


def is_for(cycles: Table, purpose: str) -> NDArray[np.bool_]:
    """Which commands have an operation for this purpose: one of ``data``, ``flush`` and ``other``."""
    return is_operation(cycles, *(operation for operation, each in PURPOSES.items() if each == purpose))


def is_operation(cycles: Table, *operations: str) -> NDArray[np.bool_]:
    """Which commands have one of these operations."""
    return cycles.each(_has_one_of(operations))


@cache
def _has_one_of(operations: tuple[str, ...]) -> Callable[[Table], NDArray[np.bool_]]:
    """The same function for the same operations, as `Table.each` needs it."""

    def has_one(cycles: Table) -> NDArray[np.bool_]:
        words = cycles.words("operation")
        is_one = np.zeros(NO_WORD + 1, dtype=np.bool_)
        is_one[[words.index(word) for word in operations if word in words]] = True
        return np.asarray(is_one[cycles.raw("operation")])

    return has_one
