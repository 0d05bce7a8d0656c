"""What was captured: the parts that ``summary`` and ``diagnose`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iscsitrace.cli.output import show_line
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.tables.trace import Trace


def describe(trace: Trace) -> dict[str, Any]:
    """Packets, sessions and connections as JSON has them."""
    return {
        "packet_count": trace.packet_count,
        "tcp_packet_count": trace.tcp_packet_count,
        "sessions": list(trace.sessions.rows()),
        "connections": list(trace.connections.rows()),
    }


def show_inputs(inputs: list[dict[str, Any]]) -> None:
    """A line per input: what it is, how long, from when."""
    for source in inputs:
        first, last = source.get("time_first_ns"), source.get("time_last_ns")
        span = cells.seconds(last - first) if first is not None and last is not None else "-"
        cut = ", its end is missing" if source.get("is_cut_short") else ""
        show_line(
            f"{source.get('name')}: {source.get('format')}, {source.get('packet_count')} packets, "
            f"{span} s from {cells.date(first)}{cut}"
        )
