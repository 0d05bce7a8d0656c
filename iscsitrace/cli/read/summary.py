"""``iscsitrace summary``: who talked, what was negotiated, how much was moved how fast, how good the capture is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.analysis.groups.mirrors import RECOGNISING
from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.output import envelope, show_heading, show_json, show_line, show_table
from iscsitrace.cli.record import capture_content
from iscsitrace.cli.record.capture_content import show_inputs
from iscsitrace.cli.record.capture_health import show_coverage, show_health
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.tables.trace import Trace

_SIZES_SHOWN = 8


@click.command(
    epilog="Example:  iscsitrace summary --from 10s --to 20s capture.pcapng",
)
@takes_captures
@as_json
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show who offered which value of each key.")
def command(capture_input: CaptureInput, is_json: bool, is_verbose: bool) -> None:
    """Sessions, connections, negotiated keys, volumes, block sizes, latencies, coverage and capture health.

    Rates are over the active time, in which at least one task was outstanding. Percentiles are values that occurred.
    """
    trace = capture_input.read(RECOGNISING, loading="iscsitrace.analysis.groups.mirrors.account")
    if is_json:
        show_json(envelope(trace) | describe(trace) | {"mirrors": _mirrors(trace)})
    else:
        show_inputs(trace.inputs)
        _show(describe(trace), _mirrors(trace), is_verbose)


def describe(trace: Trace) -> dict[str, Any]:
    """What ``--json`` prints after the envelope, but for mirrors, and the text is made from."""
    from iscsitrace.analysis.measures import capture_health as health
    from iscsitrace.analysis.measures import operations, volumes

    return capture_content.describe(trace) | {
        "parameters": list(trace.parameters.rows()),
        "volumes": [asdict(volume) for volume in volumes.measure(trace.cycles)],
        "queue_depth": volumes.queue_depths(trace.cycles),
        "block_sizes": operations.block_sizes(trace.cycles),
        "latency": operations.latencies(trace.cycles),
        "coverage": [part.as_dict() for part in trace.coverage],
        "counters": health.by_name(trace.counters),
    }


def _mirrors(trace: Trace) -> list[dict[str, Any]]:
    """Sessions that carry the same writes: what a live view, which shares the rest, does not look for."""
    from iscsitrace.analysis.groups.mirrors import recognition
    from iscsitrace.analysis.groups.mirrors.account import doubt, name

    return [
        {
            "sessions": list(mirror.sessions),
            "is_sure": mirror.is_sure,
            "text": name(mirror) if mirror.is_sure else f"{name(mirror)}; {doubt(mirror)}",
        }
        for mirror in recognition.find(trace.table)
    ]


def _show(document: dict[str, Any], mirrors: list[dict[str, Any]], is_verbose: bool) -> None:
    _show_sessions(document["sessions"])
    for mirror in mirrors:
        show_line(f"{mirror['text']} (iscsitrace mirrors)")
    _show_connections([row for row in document["connections"] if row["is_iscsi"]])
    others = sum(not row["is_iscsi"] for row in document["connections"])
    if others:
        show_line(f"TCP connections that are not iSCSI: {others}")
    _show_parameters(document["parameters"], is_verbose)
    _show_volumes(document)
    _show_latencies(document["latency"])
    show_coverage(document["coverage"])
    show_health(document["counters"])


def show_totals(document: dict[str, Any]) -> None:
    """The end of a live view as text: the same tables, without those that it has shown all along."""
    _show_volumes(document)
    _show_latencies(document["latency"])
    show_coverage(document["coverage"][-1:])
    show_health(document["counters"])


def _show_sessions(sessions: list[dict[str, Any]]) -> None:
    show_heading("Sessions")
    show_table(
        ("session", "type", "initiator", "target", "ISID", "TSIH", "auth", "connections", "tasks", "end"),
        [
            (
                row["session"],
                row["session_type"],
                row["initiator_name"],
                row["target_name"],
                row["isid"],
                row["tsih"],
                row["auth_method"],
                row["connection_count"],
                row["cycle_count"],
                row["end"],
            )
            for row in sessions
        ],
    )


def _show_connections(connections: list[dict[str, Any]]) -> None:
    show_heading("iSCSI connections (rtt: least seen, tap to that side and back)")
    show_table(
        (
            "tcp.stream",
            "session",
            "CID",
            "initiator",
            "target",
            "digests (header/data)",
            "rtt target ms",
            "rtt initiator ms",
            "retransmitted packets to target",
            "to initiator",
        ),
        [
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
            for row in connections
        ],
    )


def _show_parameters(parameters: list[dict[str, Any]], is_verbose: bool) -> None:
    show_heading("Keys in force" if not is_verbose else "Keys: offered and in force")
    if is_verbose:
        show_table(
            ("tcp.stream", "key", "initiator sent", "target sent", "in force", "came about"),
            [
                (
                    row["connection"],
                    row["key"],
                    row["initiator_value"],
                    row["target_value"],
                    _in_force(row),
                    row["source"],
                )
                for row in parameters
            ],
        )
        return
    # connections of a trace mostly agree: one line per key and value, with the connections that have it
    found: dict[tuple[str, str], list[int]] = {}
    for row in parameters:
        if row["source"] != "offered":
            found.setdefault((row["key"], _in_force(row)), []).append(row["connection"])
    show_table(
        ("key", "value", "tcp.stream"),
        [(key, value, " ".join(map(str, connections))) for (key, value), connections in found.items()],
    )


def _in_force(row: dict[str, Any]) -> str:
    initiator, target = row["effective_initiator"], row["effective_target"]
    if initiator == target:
        return initiator or "-"
    sides = (("initiator", initiator), ("target", target))
    return ", ".join(f"{side} {value}" for side, value in sides if value is not None)


def _show_volumes(document: dict[str, Any]) -> None:
    show_heading("Volumes (rates over the active time)")
    show_table(
        (
            "session",
            "tasks",
            "complete",
            "read MB",
            "written MB",
            "active s",
            "tasks/s",
            "read MB/s",
            "written MB/s",
            "queue depth max",
        ),
        [
            (
                "all" if place == len(document["volumes"]) - 1 else row["session"],
                row["cycle_count"],
                row["complete_cycle_count"],
                cells.megabytes(row["read_bytes"]),
                cells.megabytes(row["write_bytes"]),
                cells.seconds(row["active_ns"]),
                "-" if row["iops"] is None else f"{row['iops']:.1f}",
                cells.megabytes(row["read_bytes_per_s"]),
                cells.megabytes(row["write_bytes_per_s"]),
                row["queue_depth_max"],
            )
            for place, row in enumerate(document["volumes"])
        ],
    )
    depth = document["queue_depth"]
    if depth["p50"] is not None:
        depths = ", ".join(f"{name} {depth[name]}" for name in ("p50", "p95", "p99", "max"))
        show_line(f"queue depth at issue, tasks: {depths}")
    show_heading("PDU block sizes (Expected Data Transfer Length)")
    by_operation: dict[str, list[dict[str, Any]]] = {}
    for row in document["block_sizes"]:
        by_operation.setdefault(row["operation"], []).append(row)
    rows: list[tuple[object, ...]] = []
    for operation, found in by_operation.items():
        sizes = sorted(found, key=lambda row: (-row["cycle_count"], row["bytes"]))
        rows += [(operation, cells.size(row["bytes"]), row["cycle_count"]) for row in sizes[:_SIZES_SHOWN]]
        rest = sizes[_SIZES_SHOWN:]
        if rest:
            rows.append((operation, f"{len(rest)} other sizes", sum(row["cycle_count"] for row in rest)))
    show_table(("operation", "block size bytes", "tasks"), rows)


def _show_latencies(latencies: list[dict[str, Any]]) -> None:
    show_heading("Latency, ms, first byte of the command to status")
    show_table(
        (
            "operation",
            "tasks",
            "p50",
            "p95",
            "p99",
            "max",
            "request p50",
            "grant p50",
            "transfer p50",
            "service or status p50",
        ),
        [
            (
                row["operation"],
                row["cycle_count"],
                *(cells.milliseconds(row["latency_ns"][name]) for name in ("p50", "p95", "p99", "max")),
                cells.milliseconds(row["request_ns"]["p50"]),
                cells.milliseconds(row["grant_ns"]["p50"]),
                cells.milliseconds(row["transfer_ns"]["p50"]),
                # a read waits for its status after the data, a write for the target's service
                cells.milliseconds(
                    row["service_ns"]["p50"] if row["status_wait_ns"]["p50"] is None else row["status_wait_ns"]["p50"]
                ),
            )
            for row in latencies
        ],
    )
