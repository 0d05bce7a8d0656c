"""Coverage and capture health as text: the two tables that ``summary`` and ``check`` share."""

from __future__ import annotations

from typing import Any

from iscsitrace.cli.output import show_heading, show_table
from iscsitrace.wording import cells


def show_coverage(parts: list[dict[str, Any]]) -> None:
    """Coverage per connection and direction, the total last."""
    show_heading("Coverage, share of what the analysis explains")
    show_table(
        ("tcp.stream", "direction", "stream bytes", "explained %", "captured %", "PDUs", "missing PDUs", "PDUs %"),
        [
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
        ],
    )


def show_health(entries: list[dict[str, Any]]) -> None:
    """The counters, the worst first, with advice."""
    show_heading("Capture health")
    show_table(
        ("severity", "counter", "count", "first frame", "meaning", "advice"),
        [
            (row["severity"], row["name"], row["count"], row["first_frame"], row["meaning"], row["advice"])
            for row in entries
        ],
    )
