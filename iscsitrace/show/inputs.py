"""The captures that were read: what is in them, the places of several taps, how much was decoded, what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from iscsitrace.show.document import Grid, Section, table
from iscsitrace.wording import cells
from iscsitrace.wording.amounts import count

if TYPE_CHECKING:
    from iscsitrace.tables.trace import TraceTables
    from iscsitrace.taps.reading import TappedTables


def contents(trace: TraceTables) -> dict[str, Any]:
    """Packet counts, sessions and connections, for JSON."""
    return {
        "packet_count": trace.packet_count,
        "tcp_packet_count": trace.tcp_packet_count,
        "sessions": list(trace.sessions.rows()),
        "connections": list(trace.connections.rows()),
    }


def places_of(trace: TraceTables) -> dict[str, Any]:
    """``places`` of a document, if the trace has several taps; else nothing."""
    if not trace.is_tapped:
        return {}
    # what few captures need is loaded when one does: it takes a third of the start
    from iscsitrace.show import places

    return {"places": places.as_dict(cast("TappedTables", trace))}


def sections_of_places(document: Mapping[str, Any]) -> Iterator[Section]:
    """The section of ``places_of``, if there is one."""
    if "places" in document:
        from iscsitrace.show import places

        yield places.section(document["places"])


def of_trace(trace: TraceTables) -> Section:
    """``section`` of a trace; of several taps the captures of each, from the initiator to the target."""
    if not trace.is_tapped:
        return section(trace.inputs, trace.packet_count)
    taps = [tap.trace for tap in cast("TappedTables", trace).tap_list]
    blocks = (block for tap in taps for block in section(tap.inputs, tap.packet_count).blocks)
    return Section("", (*blocks, "times and frame numbers are from the first capture"))


def section(inputs: Iterable[Mapping[str, Any]], read_count: int | None = None) -> Section:
    """One line per capture; and how many packets of them were read, where a filter or a time left out some."""
    every = [*inputs]
    whole = sum(source["packet_count"] for source in every)
    if read_count is None or read_count >= whole:
        return Section("", lines(every))
    counted = "times and frame numbers count from the start of the capture"
    return Section("", (*lines(every), f"{read_count:,} of these {whole:,} packets read; {counted}"))


def overview(columns: Sequence[str], groups: Sequence[tuple[Sequence[str], *tuple[object, ...]]]) -> Section:
    """One line for each group of captures that belong together: its first capture, and cells of these columns."""
    rows = [
        (sources[0] + (f" and {len(sources) - 1:,} more" if len(sources) > 1 else ""), *shown)
        for sources, *shown in groups
    ]
    title = f"Overview: {len(groups):,} groups of captures that belong together"
    return Section(title, (table(("captures", *columns), rows),))


def zero_of_times(trace: TraceTables) -> str:
    """What the times of a table are."""
    return f"time: s after the first packet, {cells.date(trace.start_ns or None)}"


def lines(inputs: Iterable[Mapping[str, Any]], limit: int | None = None) -> tuple[str, ...]:
    """One line per capture: format, packets, duration, time of the first packet; beyond the limit they are counted."""
    every = [_line(source) for source in inputs]
    more = 0 if limit is None else len(every) - limit
    return (*every[:limit], *([f"{more:,} more captures"] if more > 0 else []))


def _line(source: Mapping[str, Any]) -> str:
    first, last = source.get("time_first_ns"), source.get("time_last_ns")
    span = cells.seconds(last - first) if first is not None and last is not None else cells.NOTHING
    cut = ", truncated at its end" if source.get("is_cut_short") else ""
    return (
        f"{source.get('name')}: {source.get('format')}, {count(source.get('packet_count') or 0, 'packet')}, "
        f"{span} s from {cells.date(first)}{cut}"
    )


def coverage(parts: Iterable[Mapping[str, Any]], total: int = 0) -> Grid:
    """Coverage of each connection and direction, the total last; with a note on how many of ``total`` are omitted."""
    columns = ("stream", "direction", "stream bytes", "decoded %", "captured %", "PDUs", "missing PDUs", "PDUs %")
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
    caption = "Coverage: decoded and captured shares of the TCP stream bytes"
    return table(columns, rows, caption, count=total)


def counters(entries: Iterable[Mapping[str, Any]], caption: str = "Capture health") -> Grid:
    """The counters with advice, the most severe first."""
    columns = ("severity", "counter", "count", "first frame", "meaning", "advice")
    names = ("name", "count", "first_frame", "meaning", "advice")
    rows = ((row["severity"].replace("_", " "), *(row[name] for name in names)) for row in entries)
    return table(columns, rows, caption)
