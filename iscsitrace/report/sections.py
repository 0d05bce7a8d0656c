"""The sections after the plots: slowest commands, workload, parameters, connections, capture health, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from iscsitrace.measure import capture_health as health
from iscsitrace.measure import operations, waits
from iscsitrace.measure.parameters import negotiated
from iscsitrace.measure.selection import display_filter
from iscsitrace.relate.loads import Loads
from iscsitrace.relate.mirrors.account import Account
from iscsitrace.report import mirrors
from iscsitrace.report.subject import Subject
from iscsitrace.show import latencies, loads
from iscsitrace.show.document import Grid, Section, limited
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import cells

SLOWEST: Final = 12
ROWS: Final = 24
"""Rows of any other table; the remaining rows are counted."""
KEYS: Final = 60
"""Rows of negotiated parameters; a login has about 36."""
CONNECTIONS: Final = 8
"""Connections that are named in one cell."""
_FLAGS: Final = {
    "is_status_in_data": "status in data",
    "is_aborted": "aborted",
    "has_capture_gap": "capture gap",
    "has_retransmission": "retransmission",
}


def of_trace(trace: Trace, subject: Subject | None, accounts: Sequence[Account] = ()) -> tuple[Section, ...]:
    """Every section; ``subject`` is what the report is about, ``accounts`` are the mirrors."""
    found: list[Section] = []
    if subject is not None and len(subject.commands(trace)):
        found += [_slowest(trace, subject), _traffic(trace, subject)]
    found += [*([_loads(trace)] if len(trace.cycles) else ()), *mirrors.of_trace(trace, accounts)]
    sessions = subject.sessions if subject else ()
    return (*found, _parameters(trace, sessions), _connections(trace, sessions), _health(trace), _making(trace))


def _slowest(trace: Trace, subject: Subject) -> Section:
    cycles = subject.commands(trace)
    waited = waits.of(cycles, trace.connections)
    ranked = waited.slowest_first()
    rows = list(cycles.select(ranked[:SLOWEST]).rows())
    shown = latencies.each(waited.select(ranked[:SLOWEST]))
    times = trace.connections.raw("time_first_ns")
    origin_ns = int(times.min()) if len(times) else 0
    columns = (
        *("command", "time s", "operation", "LBA", "I/O size", "latency ms", "request", "grant", "transfer", "service"),
        *("status wait", "queue depth", "R2Ts", "frames", "flags"),
    )
    lines = ["The commands with the highest latency, from command to status. Phases are in ms."]
    if open_count := int(waited.is_open.sum()):
        noun = "command has" if open_count == 1 else "commands have"
        lines.append(
            f"{open_count:,} {noun} no status: > is the time until the abort, or the end of connection or capture."
        )
    if missing := len(cycles) - len(ranked):
        noun = "command" if missing == 1 else "commands"
        lines.append(f"The latency of {missing:,} {noun} is unknown: packets are missing from the capture.")
    return Section(
        "Slowest commands",
        tuple(lines),
        (
            Grid(
                f"Slowest {len(rows)} of {len(ranked):,} commands",
                columns,
                tuple(_command(row, each, origin_ns) for row, each in zip(rows, shown, strict=True)),
            ),
            Grid(
                "Display filters for Wireshark",
                ("command", "display filter"),
                tuple((str(row["cycle"]), display_filter(row)) for row in rows),
            ),
        ),
        "slow",
    )


def _command(row: dict[str, Any], latency: str, origin_ns: int) -> tuple[str, ...]:
    phases = ("request_ns", "grant_ns", "transfer_ns", "service_ns", "status_wait_ns")
    flags = [word for name, word in _FLAGS.items() if row[name]]
    if not row["is_complete"]:
        flags.append("incomplete")
    last = row["status_frame"]
    return (
        str(row["cycle"]),
        cells.seconds(row["command_first_ns"] - origin_ns),
        cells.short(row["operation"]),
        cells.short(row["lba"]),
        cells.size(row["bytes"]),
        latency,
        *(cells.milliseconds(row[name]) for name in phases),
        cells.short(row["queue_depth"]),
        cells.short(row["r2t_count"]),
        f"{row['command_frame']} to {last}" if last is not None else str(row["command_frame"]),
        ", ".join(flags) or cells.NOTHING,
    )


def _traffic(trace: Trace, subject: Subject) -> Section:
    cycles = subject.commands(trace)
    names = ("p50", "p95", "p99", "max")
    measured = operations.latencies(cycles, waits.of(cycles, trace.connections))
    rows = [
        (
            row["operation"],
            cells.count(row["cycle_count"]),
            cells.count(row["latency_ns"]["n"]),
            *(latencies.percentile(row["latency_ns"], name) for name in names),
            *(
                cells.milliseconds(row[f"{phase}_ns"]["p50"])
                for phase in ("request", "grant", "transfer", "service", "status_wait")
            ),
        )
        for row in measured
    ]
    sizes = sorted(operations.block_sizes(cycles), key=lambda row: (-row["cycle_count"], row["bytes"]))
    columns = (
        "operation",
        "commands",
        "n",
        *names,
        "request p50",
        "grant p50",
        "transfer p50",
        "service p50",
        "status wait p50",
    )
    return Section(
        "Workload",
        (
            f"Commands of {subject.label}. Latencies are in ms, from command to status; percentiles by nearest rank.",
            *operations.without_status(measured),
        ),
        (
            limited("Latency by operation, ms", columns, rows, ROWS),
            limited(
                "I/O sizes (Expected Data Transfer Length)",
                ("operation", "I/O size", "commands"),
                [(row["operation"], cells.size(row["bytes"]), cells.count(row["cycle_count"])) for row in sizes],
                12,
            ),
        ),
        "traffic",
    )


def _loads(trace: Trace) -> Section:
    """All commands of the capture by volume and by operation, and by initiator where there are several."""
    loads_of = Loads(trace.table)
    found = {name: loads_of.by(name) for name in ("volume", "operation", "initiator")}
    grids = [
        loads.grid(name, each, ROWS) for name, each in found.items() if each and (name != "initiator" or len(each) > 1)
    ]
    return Section("Load", (loads.READING,), tuple(grids), "load")


def _parameters(trace: Trace, sessions: tuple[int, ...]) -> Section:
    found: dict[tuple[str, ...], list[int]] = {}
    for row in trace.parameters.rows():
        if row["session"] in sessions and row["source"] != "offered":
            values = [row["key"], negotiated(row), row["initiator_value"], row["target_value"], row["source"]]
            found.setdefault(tuple(cells.short(value) for value in values), []).append(row["connection"])
    rows = [(*values, cells.numbers(connections, CONNECTIONS)) for values, connections in found.items()]
    grid = limited(
        "Negotiated parameters", ("key", "value", "initiator sent", "target sent", "source", "tcp.stream"), rows, KEYS
    )
    lines = () if rows else ("The capture has no login, so the parameters are unknown.",)
    return Section("Login parameters", lines, (grid,) if rows else (), "parameters")


def _connections(trace: Trace, sessions: tuple[int, ...]) -> Section:
    # those of the report's subject first
    rows = sorted(trace.connections.rows(), key=lambda row: (row["session"] not in sessions, row["connection"]))
    columns = (
        *("tcp.stream", "session", "initiator", "target", "header digest", "data digest", "RTT to target ms"),
        *(
            "RTT to initiator ms",
            "MB to target",
            "MB to initiator",
            "retransmissions to target",
            "retransmissions to initiator",
        ),
    )
    found = [
        (
            str(row["connection"]),
            cells.short(row["session"]),
            cells.endpoint(row, "initiator"),
            cells.endpoint(row, "target"),
            cells.short(row["header_digest"]),
            cells.short(row["data_digest"]),
            cells.milliseconds(row["rtt_to_target_min_ns"]),
            cells.milliseconds(row["rtt_to_initiator_min_ns"]),
            cells.megabytes(row["captured_bytes_to_target"]),
            cells.megabytes(row["captured_bytes_to_initiator"]),
            cells.count(row["retransmitted_packets_to_target"]),
            cells.count(row["retransmitted_packets_to_initiator"]),
        )
        for row in rows
        if row["is_iscsi"]
    ]
    others = sum(not row["is_iscsi"] for row in rows)
    lines = (f"{others:,} TCP connections are not iSCSI.",) if others else ()
    return Section(
        "Connections",
        lines,
        (limited("Connections, with minimum RTT measured from the tap", columns, found, ROWS),),
        "connections",
    )


def _health(trace: Trace) -> Section:
    coverage = [
        (
            "all" if part.connection is None else str(part.connection),
            (part.direction or "both").replace("_", " "),
            cells.count(part.stream_bytes),
            cells.percent(part.explained_bytes_share),
            cells.percent(part.captured_bytes_share),
            cells.count(part.missing_pdu_count),
            cells.percent(part.pdu_share),
        )
        # the total first: with many connections not every row is shown
        for part in (trace.coverage[-1], *trace.coverage[:-1])
    ]
    entries = [
        (
            entry["severity"].replace("_", " "),
            entry["name"],
            cells.count(entry["count"]),
            cells.short(entry["first_frame"]),
            entry["meaning"],
            entry["advice"],
        )
        for entry in health.by_name(trace.counters)
    ]
    losses = health.reaching(health.by_name(trace.counters), "data_loss")
    names = ", ".join(entry["name"] for entry in losses)
    line = f"The capture is incomplete: {names}." if losses else "Nothing is missing that would affect these numbers."
    columns = ("tcp.stream", "direction", "stream bytes", "decoded %", "captured %", "missing PDUs", "PDUs found %")
    return Section(
        "Capture health",
        (line,),
        (
            limited("Coverage: decoded share of the captured bytes and PDUs", columns, coverage, ROWS),
            Grid("Counters", ("severity", "counter", "count", "first frame", "meaning", "advice"), tuple(entries)),
        ),
        "health",
    )


def _making(trace: Trace) -> Section:
    made = trace.provenance
    inputs = [
        (
            cells.short(source["name"]),
            cells.short(source["format"]),
            cells.count(source["packet_count"]),
            cells.seconds(_span_ns(source)),
            cells.date(source["time_first_ns"]),
            cells.short(source.get("is_cut_short", False)),
        )
        for source in made["input"]
    ]
    options = [
        f"{name}: {cells.short(value)}"
        for name, value in made["options"].items()
        if value not in (None, False) and name != "tables"
    ]
    return Section(
        "How this was made",
        (
            f"iscsitrace {made['tool']['version']}, schema {made['schema']}, from {cells.count(trace.packet_count)} "
            f"packets ({cells.count(trace.tcp_packet_count)} TCP).",
            f"Options: {'; '.join(options)}." if options else "No filters.",
            "The same input and options give the same bytes. docs/method.md of the project defines each number, "
            "docs/diagnosis.md each finding.",
        ),
        (limited("Input", ("capture", "format", "packets", "seconds", "first packet", "cut short"), inputs, ROWS),),
        "making",
    )


def _span_ns(source: dict[str, Any]) -> int | None:
    first, last = source["time_first_ns"], source["time_last_ns"]
    return None if first is None or last is None else last - first
