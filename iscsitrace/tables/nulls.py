"""Which rows of a table have a value in a column, and its numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.table import Table


def known(table: Table, name: str) -> NDArray[np.bool_]:
    """True where a column is not null."""
    mask = table.mask(name)
    return np.ones(len(table), dtype=np.bool_) if mask is None else ~mask


def numbers_of(table: Table, name: str) -> NDArray[np.int64]:
    """A column of numbers as int64, -1 for null."""
    mask = table.mask(name)
    found = table.raw(name).astype(np.int64)
    if mask is not None:
        found[mask] = -1
    return found
