"""The tables, declared once: every column's name, type, unit, null rule and meaning.

The core fills columns, exports write them, ``docs/tables.md`` prints them; all three are tested against
this package. It computes nothing.

Null rule: a nullable column holds the *largest* value of its unsigned dtype, the *smallest* of its signed
dtype, or ``""`` for text, where the value is unknown or does not exist. The only exception is the 32-bit
header fields of ``pdus``, where every value is possible: ``opcode``, ``is_final``/``has_status`` and
``header_bytes`` determine whether they are present, and the core delivers the mask with the table.
"""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema import iscsi, tcp, time, together
from iscsitrace.tables.schema.declaration import CATEGORIES, Column, Table, column
from iscsitrace.tables.schema.iscsi import DERIVED_CYCLE_COLUMNS

__all__ = [
    "CATEGORIES",
    "DERIVED_CYCLE_COLUMNS",
    "DERIVED_TABLES",
    "ON_REQUEST",
    "SCHEMA_VERSION",
    "TABLES",
    "Column",
    "Table",
]

SCHEMA_VERSION: Final = 1


COUNTERS: Final = Table(
    "counters",
    "one irregularity of the input, of the whole capture (connection null) or of one connection",
    (
        column("name", "str", "name"),
        column("connection", "uint32", "the connection", null=True),
        column("severity", "category:severity", "effect on the results"),
        column("count", "uint64", "number of occurrences, or bytes"),
        column("first_frame", "uint64", "frame of the first occurrence", null=True),
        column("meaning", "str", "what is counted"),
        column("advice", "str", "what to do about it"),
    ),
)

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        iscsi.CONNECTIONS,
        iscsi.SESSIONS,
        iscsi.PARAMETERS,
        iscsi.PDUS,
        iscsi.CYCLES,
        iscsi.ROUNDS,
        iscsi.WRITE_STARTS,
        *iscsi.OTHERS,
        tcp.SEGMENTS,
        tcp.SACKS,
        tcp.WINDOW,
        tcp.ROUND_TRIPS,
        tcp.RETRANSMISSIONS,
        tcp.RECOVERIES,
        tcp.FLIGHTS,
        tcp.SENDERS,
        time.BUDGET,
        COUNTERS,
    )
}
"""Every table by name, in the order of the docs."""

DERIVED_TABLES: Final[dict[str, Table]] = {
    table.name: table for table in (together.MIRRORED_WRITES, together.MIRROR_LEGS, together.STREAMS)
}
"""Tables that are computed from these after the pass (analysis/groups/derived.py), by name."""

ON_REQUEST: Final = frozenset(
    {
        "pdus",
        "write_starts",
        "segments",
        "sacks",
        "window",
        "round_trips",
        "retransmissions",
        "recoveries",
        "flights",
        "senders",
        "budget",
    }
)
"""Tables that the pass fills only on request: they grow with packets or PDUs, or cost time."""
