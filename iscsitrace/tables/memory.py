"""Memory that was freed, back to the system: of ten thousand sessions a third of what their diagnosis takes."""

from __future__ import annotations

from typing import Final

from iscsitrace import _core
from iscsitrace.tables.table import Source

_LARGE_ROWS: Final = 100_000
"""Commands from which on it is worth some milliseconds."""


def give_back(source: Source) -> None:
    """After a step that made columns of all commands and let go of them; ``source`` has the tables of the trace."""
    if len(source("cycles")) >= _LARGE_ROWS:
        _core.give_back()
