"""Rows of a table as Python values, made when they are looked at, a block at a time.

Those of ten thousand sessions and their connections would take 35 MB, and a person reads twenty of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from iscsitrace.tables.table import Table

_AT_ONCE: Final = 64
"""Rows of a block: a row alone costs as much time as a dozen in a block."""
_KEPT: Final = 32
"""Blocks that are kept: sessions may have connections that began at as many different times."""


class Rows:
    """The rows of a table by their place."""

    def __init__(self, table: Table, names: Sequence[str] | None = None) -> None:
        """``names`` selects columns."""
        self._table = table
        self._names = names
        self._blocks: dict[int, list[dict[str, Any]]] = {}

    def __getitem__(self, place: int) -> dict[str, Any]:
        block, within = divmod(place, _AT_ONCE)
        if block not in self._blocks:
            if len(self._blocks) == _KEPT:
                del self._blocks[next(iter(self._blocks))]
            rows = self._table.select(slice(block * _AT_ONCE, (block + 1) * _AT_ONCE)).rows(self._names)
            self._blocks[block] = list(rows)
        return self._blocks[block][within]


class NumberedRows(Rows):
    """The rows of a table by the number that each has, such as that of its session."""

    def __init__(self, table: Table, number: str, names: Sequence[str] | None = None) -> None:
        """``number`` is the column of the numbers; ``names`` selects columns."""
        super().__init__(table, names)
        self._places = {each: place for place, each in enumerate(table.raw(number).tolist())}

    def __getitem__(self, number: int) -> dict[str, Any]:
        return super().__getitem__(self._places[number])
