"""The captures that were read, and the packets, sessions and connections in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from iscsitrace.outputs.document import Section
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.tables.trace import Trace


def contents(trace: Trace) -> dict[str, Any]:
    """Packet counts, sessions and connections, for JSON."""
    return {
        "packet_count": trace.packet_count,
        "tcp_packet_count": trace.tcp_packet_count,
        "sessions": list(trace.sessions.rows()),
        "connections": list(trace.connections.rows()),
    }


def section(inputs: Iterable[Mapping[str, Any]]) -> Section:
    """One line per capture: format, packets, duration, time of the first packet."""
    return Section("", tuple(_line(source) for source in inputs))


def _line(source: Mapping[str, Any]) -> str:
    first, last = source.get("time_first_ns"), source.get("time_last_ns")
    span = cells.seconds(last - first) if first is not None and last is not None else cells.NOTHING
    cut = ", truncated at its end" if source.get("is_cut_short") else ""
    return (
        f"{source.get('name')}: {source.get('format')}, {source.get('packet_count')} packets, "
        f"{span} s from {cells.date(first)}{cut}"
    )
