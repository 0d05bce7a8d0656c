"""The tables: every column's name, type, unit, null rule and meaning. Nothing is computed here.

The core declares what it stores (``core/trace/src/tables/``); ``declaration`` takes these from it. Declared here
are the columns and tables that are computed from the stored ones, the sidecar, and the words of categories. Exports
write them, ``docs/tables.md`` prints them.

Null rule: a nullable column holds the *largest* value of its unsigned dtype, the *smallest* of its signed
dtype, or ``""`` for text, where the value is unknown or does not exist. The only exception is the 32-bit
header fields of ``pdus``, where every value is possible: ``opcode``, ``is_final``/``has_status`` and
``header_bytes`` determine whether they are present, and the core delivers the mask with the table.
"""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema import computed
from iscsitrace.tables.schema.computed import DERIVED_CYCLE_COLUMNS
from iscsitrace.tables.schema.declaration import (
    CATEGORIES,
    DEFAULT_TABLES,
    ON_REQUEST,
    PURPOSES,
    TABLES,
    TAP_TABLES,
    WORDS,
    Column,
    Declaration,
)

__all__ = [
    "CATEGORIES",
    "DATASET_TABLES",
    "DEFAULT_TABLES",
    "DERIVED_CYCLE_COLUMNS",
    "DERIVED_TABLES",
    "ON_REQUEST",
    "PURPOSES",
    "SCHEMA_VERSION",
    "TABLES",
    "TAPPED_TABLES",
    "TAP_TABLES",
    "WORDS",
    "Column",
    "Declaration",
]

SCHEMA_VERSION: Final = 1

DERIVED_TABLES: Final[dict[str, Declaration]] = {
    table.name: table for table in (computed.EVENTS, computed.MIRRORED_WRITES, computed.MIRROR_LEGS, computed.STREAMS)
}
"""Tables that are computed from these after the pass (events/derived.py), by name."""

TAPPED_TABLES: Final[dict[str, Declaration]] = {table.name: table for table in (computed.LEGS, computed.TAPS)}
"""Tables that are computed from captures of the same traffic at several taps (taps/reading.py), by name."""

DATASET_TABLES: Final[dict[str, Declaration]] = {
    table.name: table for table in (computed.FINDINGS, computed.EVENTS, computed.TIME_BREAKDOWN)
}
"""Tables that are computed in each period of a ring, for a dataset (fleet/periods.py), by name."""
