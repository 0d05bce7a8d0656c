"""The summary of a trace as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.measure import capture_health, connection_counts, throughput, waits, workload
from iscsitrace.measure.parameters import connections_by_value, negotiated
from iscsitrace.measure.ranks import PERCENTILES
from iscsitrace.relate.mirrors import recognition
from iscsitrace.relate.mirrors.account import doubt, name
from iscsitrace.show import inputs
from iscsitrace.show.document import Block, Grid, Section, more_rows, table
from iscsitrace.show.loads import percentiles
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.tables.trace import TraceTables

_SIZES: Final = 8
"""I/O sizes shown for each operation; the others are summed."""
KEYS: Final = 60
"""Rows of negotiated parameters; a login has about 36."""
_CONNECTIONS: Final = 8
"""Connections that are named in one cell."""


def as_dict(
    trace: TraceTables, by: Sequence[str] = (), yardsticks: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """What ``summary --json`` prints, with the loads ``by`` each of these, and shares of the ``yardsticks`` in bytes/s:
    ``line``, ``socket``.
    """
    document = trace.provenance | totals(trace) | {"mirrors": _mirrors(trace)} | inputs.places_of(trace)
    # `watch` keeps no commands, so its totals have none of these
    document["connection_counts"] = [each.as_dict() for each in connection_counts.of_cycles(trace.cycles)]
    if yardsticks:
        document |= {f"{name}_bytes_per_s": each for name, each in yardsticks.items()}
        document["volumes"] = [row | throughput.shares(row, yardsticks) for row in document["volumes"]]
    if by:
        from iscsitrace.relate.loads import Loads

        found = Loads(trace.table)
        document["by"] = {name: [load.as_dict() for load in found.by(name)] for name in by}
    return document


def in_brief(trace: TraceTables) -> tuple[object, ...]:
    """The cells of an overview."""
    is_iscsi = trace.connections.raw("is_iscsi")
    counts = trace.packet_count, int(is_iscsi.sum()), len(trace.sessions), len(trace.cycles)
    return (cells.date(trace.start_ns or None), *counts, None)


def overview(groups: Sequence[tuple[Sequence[str], tuple[object, ...] | None, str]]) -> Section:
    """One line for each group of captures: what is in it, or why it could not be read."""
    columns = ("first packet", "packets", "connections", "sessions", "commands", "problem")
    rows = [(sources, *(brief or (None,) * 5), *((error,) if not brief else ())) for sources, brief, error in groups]
    return inputs.overview(columns, rows)


def sections_by(trace: TraceTables, by: Sequence[str], top: int) -> Iterator[Section]:
    """The ``top`` worst loads by each of these as text; the trace has the tables loads.NEEDED."""
    from iscsitrace.relate.loads import Loads
    from iscsitrace.show import loads

    yield inputs.of_trace(trace)
    found = Loads(trace.table)
    yield Section("", (loads.READING, *(loads.grid(name, found.by(name), top) for name in by)))


def totals(trace: TraceTables) -> dict[str, Any]:
    """What ``summary`` and the totals of ``watch`` have in common."""
    waited = waits.of_trace(trace.table)
    return inputs.contents(trace) | {
        "parameters": list(trace.parameters.rows()),
        "volumes": [volume.as_dict() for volume in throughput.measure(trace.cycles, waited)],
        "queue_depth": throughput.queue_depths(trace.cycles),
        "block_sizes": workload.block_sizes(trace.cycles),
        "latency": workload.latencies(trace.cycles, waited),
        "coverage": [part.as_dict() for part in trace.coverage],
        "counters": capture_health.by_name(trace.counters),
    }


def _mirrors(trace: TraceTables) -> list[dict[str, Any]]:
    return [
        {
            "sessions": list(mirror.sessions),
            "is_sure": mirror.is_sure,
            "text": name(mirror) if mirror.is_sure else f"{name(mirror)}; {doubt(mirror)}",
        }
        for mirror in recognition.find(trace.table)
    ]


def sections(document: Mapping[str, Any], top: int, *, is_verbose: bool = False) -> Iterator[Section]:
    """The document as text, without its inputs; with ``is_verbose`` the values that each side offered. Where there are
    more sessions than ``top``, the busiest of them, and their connections.
    """
    busiest = _busiest(document, top)
    connections = [row for row in document["connections"] if row["is_iscsi"]]
    shown = _cut(connections, busiest)[:top]
    numbers = {row["connection"] for row in shown}
    parts = [part for part in document["coverage"] if part["connection"] is None or part["connection"] in numbers]
    keys = document["parameters"]
    blocks: list[Block] = [_of_many(sessions_grid(_cut(document["sessions"], busiest)), len(document["sessions"]))]
    blocks += [f"{mirror['text']} (iscsitrace mirrors)" for mirror in document["mirrors"]]
    blocks.append(_of_many(connections_grid(shown), len(connections)))
    blocks += others(document["connections"])
    blocks.append(offers(keys, top * KEYS) if is_verbose else _parameters(keys, top))
    yield Section("", (*blocks, *_measured(document, busiest)))
    yield from inputs.sections_of_places(document)
    yield Section("", (inputs.coverage(parts, len(document["coverage"])), inputs.counters(document["counters"])))


def others(connections: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many connections are not iSCSI, and how many of them were refused: attempts, to an iSCSI portal too."""
    found = [row for row in connections if not row["is_iscsi"]]
    refused = sum(row["is_refused"] for row in found)
    attempts = f" ({refused:,} refused with a RST)" if refused else ""
    return [f"TCP connections that are not iSCSI: {len(found):,}{attempts}"] if found else []


def _busiest(document: Mapping[str, Any], top: int) -> list[int] | None:
    """The ``top`` sessions with the longest active time, longest first; None where there are no more."""
    active_ns = {volume["session"]: volume["active_ns"] for volume in document["volumes"]}
    numbers = [row["session"] for row in document["sessions"]]
    if max(len(numbers), len(active_ns) - 1, sum(row["is_iscsi"] for row in document["connections"])) <= top:
        return None
    return sorted(numbers, key=lambda number: (-active_ns.get(number, -1), number))[:top]


def _cut(rows: Sequence[Mapping[str, Any]], sessions: Sequence[int] | None) -> list[Mapping[str, Any]]:
    """The rows of these sessions, in their order; all rows for None."""
    if sessions is None:
        return list(rows)
    place = {number: index for index, number in enumerate(sessions)}
    return sorted((row for row in rows if row["session"] in place), key=lambda row: place[row["session"]])


def sections_of_totals(document: Mapping[str, Any]) -> Iterator[Section]:
    """The totals of ``watch``: without the tables that it has shown all along."""
    found = inputs.coverage(document["coverage"][-1:]), inputs.counters(document["counters"])
    yield Section("", (*_measured(document, None), *found))


def _measured(document: Mapping[str, Any], busiest: Sequence[int] | None) -> Iterator[Block]:
    *volumes, total = document["volumes"]
    yield _of_many(_volumes([*_cut(volumes, busiest), total]), len(volumes) + 1)
    yield from map(counts_grid, _cut(document.get("connection_counts", ()), busiest))
    depth = document["queue_depth"]
    if depth["p50"] is not None:
        depths = ", ".join(f"{name} {depth[name]}" for name in PERCENTILES if depth[name] is not None)
        yield f"queue depth when a command is issued: {depths}"
    yield sizes(document["block_sizes"])
    yield latency(document["latency"])


def sessions_grid(rows: Iterable[Mapping[str, Any]]) -> Grid:
    """A row for each session."""
    columns = ("session", "type", "initiator", "target", "ISID", "TSIH", "auth", "connections", "commands", "end")
    names = (
        *("session", "session_type", "initiator_name", "target_name", "isid", "tsih", "auth_method"),
        *("connection_count", "cycle_count", "end"),
    )
    return table(columns, ([row[name] for name in names] for row in rows), "Sessions")


def _of_many(grid: Grid, count: int) -> Grid:
    """The table with a note on how many of ``count`` rows it omits."""
    more = more_rows(count - len(grid.rows))
    return grid._replace(notes=tuple(f"{note[:-1]}; --top COUNT shows more." for note in more))


def connections_grid(rows: Iterable[Mapping[str, Any]], limit: int | None = None) -> Grid:
    """A row for each iSCSI connection."""
    columns = (
        *("stream", "session", "CID", "initiator", "target", "digests (header/data)", "RTT to target ms"),
        *("RTT to initiator ms", "retransmissions to target", "to initiator"),
    )
    found = [
        (
            row["connection"],
            row["session"],
            row["cid"],
            cells.endpoint(row, "initiator"),
            cells.endpoint(row, "target"),
            f"{row['header_digest'] or '-'}/{row['data_digest'] or '-'} ({row['digest_source'] or '-'})",
            cells.milliseconds(row["rtt_to_target_min_ns"]),
            cells.milliseconds(row["rtt_to_initiator_min_ns"]),
            row["retransmitted_packets_to_target"],
            row["retransmitted_packets_to_initiator"],
        )
        for row in rows
    ]
    return table(columns, found, "iSCSI connections (RTT: minimum, from the capture point)", limit=limit)


def offers(rows: Iterable[Mapping[str, Any]], limit: int = KEYS) -> Grid:
    """One line per key with what each side sent: most connections of a trace have the same."""
    found: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        values = (row["key"], negotiated(row), row["initiator_value"], row["target_value"], row["source"])
        found.setdefault(tuple(map(cells.short, values)), []).append(row["connection"])
    columns = ("key", "value", "initiator sent", "target sent", "source", "stream")
    lines = ((*values, cells.numbers(connections, _CONNECTIONS)) for values, connections in found.items())
    return table(columns, lines, "Parameters: offered and negotiated", limit=limit)


def _parameters(rows: Iterable[Mapping[str, Any]], top: int) -> Grid:
    """One line per key and value."""
    found = [
        (key, value or cells.NOTHING, cells.numbers(connections, top))
        for (key, value), connections in connections_by_value(rows).items()
    ]
    return table(("key", "value", "stream"), found, "Negotiated parameters", limit=KEYS)


def _volumes(rows: Sequence[Mapping[str, Any]]) -> Grid:
    compared = [name for name in ("line", "socket") if f"read_share_of_{name}" in rows[0]]
    columns = (
        *(
            "session",
            "commands",
            "complete",
            "read MB",
            "written MB",
            "in flight s",
            "IOPS",
            "read MB/s",
            "written MB/s",
        ),
        "queue depth max",
        *(f"{word} % of {name}" for name in compared for word in ("read", "written")),
    )
    found = [
        (
            "all" if place == len(rows) - 1 else row["session"],
            row["cycle_count"],
            row["complete_cycle_count"],
            cells.megabytes(row["read_bytes"]),
            cells.megabytes(row["write_bytes"]),
            cells.seconds(row["active_ns"]),
            cells.NOTHING if row["iops"] is None else f"{row['iops']:.1f}",
            cells.megabytes(row["read_bytes_per_s"]),
            cells.megabytes(row["write_bytes_per_s"]),
            row["queue_depth_max"],
            *(cells.percent(row[f"{word}_share_of_{name}"]) for name in compared for word in ("read", "write")),
        )
        for place, row in enumerate(rows)
    ]
    return table(columns, found, "Throughput (rates over the time with reads or writes in flight)")


def counts_grid(row: Mapping[str, Any]) -> Grid:
    """What a session carries with each number of connections."""
    counts, has_resent = row["counts"], any(each["resent_share"] is not None for each in row["counts"])
    columns = (
        *("connections", "commands", "in flight s", "MB/s", "latency p50", "p95"),
        *(("retransmitted %",) if has_resent else ()),
        "measured in s",
    )
    found = [
        (
            each["connections"],
            each["cycle_count"],
            cells.seconds(each["active_ns"]),
            cells.megabytes(each["bytes_per_s"]),
            cells.milliseconds(each["latency_p50_ns"]),
            cells.milliseconds(each["latency_p95_ns"]),
            *((cells.percent(each["resent_share"]),) if has_resent else ()),
            cells.NOTHING if each["measuring_ns"] is None else f"{each['measuring_ns'] / 1e9:.1f}",
        )
        for each in counts
    ]
    enough = row["enough"]
    notes = (
        f"enough: {wording.count(enough, 'connection')}. No larger number is more than 3 % faster."
        if enough is not None
        else "More connections than were tried may be faster.",
        "measured in: the shortest time whose throughput is within 5 % of this one, 19 times of 20",
    )
    return table(columns, found, f"Session {row['session']} by the number of its connections", notes=notes)


def sizes(rows: Iterable[Mapping[str, Any]]) -> Grid:
    """The most frequent I/O sizes of each operation."""
    found: list[tuple[object, ...]] = []
    for operation, each in workload.largest_counts(rows, _SIZES).items():
        found += [(operation, cells.size(row["bytes"]), row["cycle_count"]) for row in each.shown]
        if each.other_count:
            found.append((operation, wording.count(each.other_count, "other size"), each.other_cycle_count))
    return table(("operation", "I/O size", "commands"), found, "I/O sizes (Expected Data Transfer Length)")


def latency(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """The latency of each operation, and its parts."""
    columns = (
        *("operation", "commands", "n", *PERCENTILES, "request p50", "grant p50", "transfer p50"),
        "service or status wait p50",
    )
    found = [
        (
            row["operation"],
            row["cycle_count"],
            row["latency_ns"]["n"],
            *percentiles(row["latency_ns"]),
            cells.milliseconds(row["request_ns"]["p50"]),
            cells.milliseconds(row["grant_ns"]["p50"]),
            cells.milliseconds(row["transfer_ns"]["p50"]),
            # of a write the target's service, of a read the wait for its status after the data
            cells.milliseconds(
                row["service_ns"]["p50"] if row["status_wait_ns"]["p50"] is None else row["status_wait_ns"]["p50"]
            ),
        )
        for row in rows
    ]
    caption = "Latency in ms, from the first byte of the command to its status"
    return table(columns, found, caption, notes=workload.without_status(rows))
