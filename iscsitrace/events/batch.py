"""Events of one kind as columns, and their texts: one is made for each distinct combination, not for each event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Batch:
    """Events of one kind. A column is an array, or one value for all; None is null."""

    kind: str
    time_ns: Array
    text: Array | str
    frame: Array | None = None
    end_ns: Array | int | None = None
    session: Array | None = None
    connection: Array | None = None
    lun: Array | None = None
    cycle: Array | None = None
    severity: Array | str | None = None
    """Words; None for the usual one of the kind."""

    def __len__(self) -> int:
        return len(self.time_ns)


def distinct(*columns: Array) -> tuple[list[tuple[Any, ...]], Array]:
    """The distinct combinations of values of these columns, and for each row the number of its own."""
    number_of: dict[tuple[Any, ...], int] = {}
    rows = zip(*(column.tolist() for column in columns), strict=True)
    codes = np.array([number_of.setdefault(row, len(number_of)) for row in rows], dtype=np.intp)
    return list(number_of), codes


def texts(word: Callable[..., str], *columns: Array) -> Array:
    """The text of each row; ``word`` is called once for each combination of values of the columns."""
    combinations, codes = distinct(*columns)
    words = np.empty(len(combinations), dtype=object)
    words[:] = [word(*values) for values in combinations]
    return words[codes]
