"""The captures that were read: packets, sessions and connections in them, and the places of several taps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from iscsitrace.show.document import Section
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.tables.trace import Trace
    from iscsitrace.taps.reading import TappedTrace


def contents(trace: Trace) -> dict[str, Any]:
    """Packet counts, sessions and connections, for JSON."""
    return {
        "packet_count": trace.packet_count,
        "tcp_packet_count": trace.tcp_packet_count,
        "sessions": list(trace.sessions.rows()),
        "connections": list(trace.connections.rows()),
    }


def places_of(trace: Trace) -> dict[str, Any]:
    """``places`` of a document, if the trace has several taps; else nothing."""
    if not trace.is_tapped:
        return {}
    # what few captures need is loaded when one does: it takes a third of the start
    from iscsitrace.show import places

    return {"places": places.as_dict(cast("TappedTrace", trace))}


def sections_of_places(document: Mapping[str, Any]) -> Iterator[Section]:
    """The section of ``places_of``, if there is one."""
    if "places" in document:
        from iscsitrace.show import places

        yield places.section(document["places"])


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
