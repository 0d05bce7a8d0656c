"""The table ``events`` of the schema, from the events of all families."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from iscsitrace.events import capture as capture_events
from iscsitrace.events import exchanges, logins, progress, tcp
from iscsitrace.events.capture import Batch, EventSource, distinct
from iscsitrace.tables.schema import CATEGORIES, DERIVED_TABLES
from iscsitrace.tables.table import Array, Source, Table, null_value
from iscsitrace.wording.event_kinds import SEVERITY_OF

FAMILIES: Final = (tcp, logins, exchanges, progress, capture_events)
"""One file each, with a function ``events``."""
_KINDS: Final = CATEGORIES["event_kind"]
_SEVERITIES: Final = CATEGORIES["severity"]


def events(source: Source) -> Table:
    """The events of a trace that was read with the tables NEEDED, in order of time."""
    capture = EventSource(source)
    return _table([batch for family in FAMILIES for batch in family.events(capture) if len(batch)])


def _table(batches: Iterable[Batch]) -> Table:
    declaration = DERIVED_TABLES["events"]
    parts = [_columns(batch) for batch in batches]
    columns = {}
    for column in declaration.columns[1:]:
        dtype = "uint8" if ":" in column.dtype else "object" if column.dtype == "str" else column.dtype
        columns[column.name] = np.concatenate([np.empty(0, dtype=dtype), *(part[column.name] for part in parts)])
    # of events at one time, that of the earlier frame first; null is the largest frame
    order = np.lexsort((columns["frame"], columns["time_ns"]))
    columns = {name: values[order] for name, values in columns.items()}
    return Table(declaration, {"event": np.arange(len(order), dtype=np.uint32), **columns}, words=CATEGORIES)


def _columns(batch: Batch) -> dict[str, Array]:
    """The columns of one batch as the schema has them."""
    count = len(batch)
    columns: dict[str, Array] = {
        "kind": np.full(count, _KINDS.index(batch.kind), dtype=np.uint8),
        "severity": _severities(batch),
    }
    for column in DERIVED_TABLES["events"].columns[1:]:
        if column.name in columns:
            continue
        values = getattr(batch, column.name)
        if column.dtype == "str":
            columns[column.name] = np.full(count, values, dtype=object) if isinstance(values, str) else values
        elif values is None:
            columns[column.name] = np.full(count, null_value(column.dtype), dtype=column.dtype)
        else:
            columns[column.name] = np.broadcast_to(np.asarray(values, dtype=column.dtype), count)
    # several capture queues may date the answer before the question; the null value is below every time
    is_known = columns["end_ns"] != null_value("int64")
    columns["end_ns"] = np.where(is_known, np.maximum(columns["end_ns"], columns["time_ns"]), columns["end_ns"])
    return columns


def _severities(batch: Batch) -> Array:
    words = SEVERITY_OF[batch.kind] if batch.severity is None else batch.severity
    if isinstance(words, str):
        return np.full(len(batch), _SEVERITIES.index(words), dtype=np.uint8)
    combinations, codes = distinct(words)
    return np.array([_SEVERITIES.index(word) for (word,) in combinations], dtype=np.uint8)[codes]
