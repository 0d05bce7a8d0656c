"""Coverage and capture health: two tables that several commands show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from iscsitrace.show.document import Section, more_rows, table
from iscsitrace.wording import cells


def coverage(parts: Iterable[Mapping[str, Any]], count: int = 0) -> Section:
    """Coverage of each connection and direction, the total last; with a note on how many of ``count`` are omitted."""
    columns = ("tcp.stream", "direction", "stream bytes", "decoded %", "captured %", "PDUs", "missing PDUs", "PDUs %")
    rows = [
        (
            "all" if part["connection"] is None else part["connection"],
            (part["direction"] or "both").replace("_", " "),
            part["stream_bytes"],
            cells.percent(part["explained_bytes_share"]),
            cells.percent(part["captured_bytes_share"]),
            part["pdu_count"],
            part["missing_pdu_count"],
            cells.percent(part["pdu_share"]),
        )
        for part in parts
    ]
    grid = replace(table(columns, rows), notes=more_rows(count - len(rows)))
    return Section("Coverage: decoded and captured shares of the TCP stream bytes", grids=(grid,))


def health(entries: Iterable[Mapping[str, Any]]) -> Section:
    """The counters with advice, the most severe first."""
    columns = ("severity", "counter", "count", "first frame", "meaning", "advice")
    names = ("severity", "name", "count", "first_frame", "meaning", "advice")
    return Section("Capture health", grids=(table(columns, ([row[name] for name in names] for row in entries)),))
