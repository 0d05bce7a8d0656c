"""The tables ``legs`` and ``taps`` of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iscsitrace.analysis.taps.legs import Legs
from iscsitrace.analysis.taps.network import Network
from iscsitrace.tables.schema import TAPPED_TABLES
from iscsitrace.tables.table import Table, null_value


def legs(command_count: int, found: Legs) -> Table:
    """A row per command of the initiator's tap."""
    columns: dict[str, Any] = {"cycle": np.arange(command_count, dtype=np.uint32)}
    for column in TAPPED_TABLES["legs"].columns[1:]:
        values = np.full(command_count, null_value(column.dtype), dtype=column.dtype)
        values[found.rows] = getattr(found, column.name)
        columns[column.name] = values
    return Table(TAPPED_TABLES["legs"], columns)


def taps(pairs: Sequence[tuple[str, str, Network]]) -> Table:
    """A row per pair of neighbours: their names, and the network between them."""
    rows = [{"tap_a": name_a, "tap_b": name_b, **network.as_dict()} for name_a, name_b, network in pairs]
    columns: dict[str, Any] = {}
    for column in TAPPED_TABLES["taps"].columns:
        values = [row[column.name] for row in rows]
        if column.nullable:
            values = [null_value(column.dtype) if value is None else value for value in values]
        columns[column.name] = values if column.dtype == "str" else np.array(values, dtype=column.dtype)
    return Table(TAPPED_TABLES["taps"], columns)
