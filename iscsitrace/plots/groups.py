"""What the commands of a plot are told apart by: operation, LUN, session or connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from iscsitrace.plots.marks import Array
from iscsitrace.relate.loads import Attributes
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables

OPERATION: Final = "operation"
TITLES: Final = {"lun": "LUN", OPERATION: OPERATION, "session": "session", "connection": "connection"}
"""By name, the word in titles."""
_LABEL_LIMIT: Final = 30


@dataclass(frozen=True)
class CommandGroups:
    """Groups of commands."""

    by: str
    """One of TITLES."""
    labels: Sequence[str]
    places: Array
    """The place of each command's group among the labels; -1 for none."""

    def select(self, rows: Array) -> CommandGroups:
        """Those of some commands."""
        return replace(self, places=self.places[rows])


def by_operation(cycles: Table) -> CommandGroups:
    """Commands by operation."""
    labels = [str(word or "unknown") for word in cycles.words_by_code("operation").tolist()]
    return CommandGroups(OPERATION, labels, cycles.raw("operation").astype(np.int64))


def of_trace(trace: TraceTables, by: str) -> CommandGroups:
    """The commands of a trace by one of TITLES; by LUN only those that read, write or erase data."""
    if by == OPERATION:
        return by_operation(trace.cycles)
    if by in ("session", "connection"):
        numbers, places = np.unique(numbers_of(trace.cycles, by), return_inverse=True)
        labels = [f"{by} {number}" if number >= 0 else f"no {by}" for number in numbers.tolist()]
        return CommandGroups(by, labels, places.ravel())
    found = Attributes(trace.table).by(by)
    return CommandGroups(by, _short(found.labels), found.places)


def _short(labels: Sequence[str]) -> list[str]:
    """``LUN 0`` where all are of one target; else the end of its name, which tells targets apart."""
    pairs = [label.partition(" of ") for label in labels]
    if len({target for _, _, target in pairs}) == 1:
        return [lun for lun, _, _ in pairs]
    return [
        f"{lun} of {target if len(target) <= _LABEL_LIMIT else f'...{target[3 - _LABEL_LIMIT :]}'}"
        for lun, _, target in pairs
    ]
