"""Data commands: the SCSI commands that read or write the medium. All others are non-I/O commands."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.table import Table

OPERATIONS: Final = (
    "read", "write", "read_reverse", "write_verify", "write_atomic", "verify", "read_long", "write_long", "write_same",
    "compare_and_write", "orwrite", "xdwriteread", "read_cd", "recover_buffered_data",
)  # fmt: skip
"""Operations whose data is that of the medium; INQUIRY, MODE SENSE and the like have data about the device."""


def is_data_command(cycles: Table) -> NDArray[np.bool_]:
    """Which commands read or write the medium and expect data, whether or not it came."""
    words = cycles.words("operation")
    codes = [words.index(word) for word in OPERATIONS if word in words]
    expected: NDArray[Any] = np.ma.filled(np.ma.asarray(cycles["bytes"]), 0)
    return np.asarray(np.isin(cycles.raw("operation"), codes) & (expected > 0))
