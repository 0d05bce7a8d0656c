"""``iscsitrace cycles``: a row per SCSI task, filtered and sorted, as text, CSV or JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli import units
from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.output import envelope, show_heading, show_line, show_table
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.tables.table import Table
    from iscsitrace.tables.trace import Trace

_FLAGS = {
    "is_status_in_data": "S",
    "is_aborted": "aborted",
    "has_capture_gap": "gap",
    "has_retransmission": "rexmt",
}


@click.command(
    epilog="Example:  iscsitrace cycles --operation read --top 20 --filter capture.pcapng",
)
@takes_captures
@as_json
@click.option("--csv", "is_csv", is_flag=True, help="All columns of the table cycles as CSV.")
@click.option("--slower", "slower_ns", type=units.Duration(), help="Only tasks with a latency above TIME, like 10ms.")
@click.option("--top", type=click.IntRange(min=1), metavar="COUNT", help="Only the COUNT slowest, the slowest first.")
@click.option("--lun", type=click.IntRange(min=0), metavar="LUN", help="Only tasks of that logical unit.")
@click.option("--operation", "operations", multiple=True, metavar="NAME", help="Only read, write ...; repeatable.")
@click.option("--block-size", "block_size", type=units.Size(), help="Only tasks of that PDU block size, like 64K.")
@click.option("--connection", type=click.IntRange(min=0), metavar="N", help="Only tasks of that tcp.stream.")
@click.option("--session", type=click.IntRange(min=0), metavar="N", help="Only tasks of that session.")
@click.option("--incomplete", "is_incomplete", is_flag=True, help="Only tasks whose status or data were not captured.")
@click.option("--filter", "has_filter", is_flag=True, help="Add a Wireshark display filter for each task.")
def command(
    capture_input: CaptureInput,
    is_json: bool,
    is_csv: bool,
    slower_ns: int | None,
    top: int | None,
    lun: int | None,
    operations: tuple[str, ...],
    block_size: int | None,
    connection: int | None,
    session: int | None,
    is_incomplete: bool,
    has_filter: bool,
) -> None:
    """One line per SCSI task: what it asked for, how long each phase took, and where to look for it.

    Phases: request (command to first data), grant (command to first R2T), transfer, then service or status wait (last
    data to status). Flags: S status with the last data, aborted, gap (bytes never captured), rexmt (bytes
    retransmitted or late), incomplete.

    A task without a status has no latency: --slower and --top leave it out. --top says how many they are, --incomplete
    lists them.
    """
    if is_json and is_csv:
        raise click.UsageError("--json and --csv exclude each other")
    if is_csv and has_filter:
        raise click.UsageError("--csv has the columns of the table; take --json for display filters")
    from iscsitrace.analysis.measures.selection import pick

    trace = capture_input.read()
    picked = pick(
        trace.cycles,
        slower_ns=slower_ns,
        lun=lun,
        operations=operations,
        block_size_bytes=block_size,
        connection=connection,
        session=session,
        is_incomplete=is_incomplete,
    )
    unranked = None
    if top is not None:
        picked, unranked = _rank(picked, top)
    if is_csv:
        from iscsitrace.outputs.csv_writer import write_csv

        write_csv(picked, sys.stdout.buffer)
    elif is_json:
        _show_json(trace, picked, has_filter)
    else:
        _show(trace, picked, has_filter)
    if unranked:
        _show_unranked(unranked, is_document=is_csv or is_json)


def _rank(cycles: Table, top: int) -> tuple[Table, Table]:
    """The slowest so many, and those that have no rank.

    A task without a status may be the slowest of all, or one that had just begun when the capture ended.
    """
    import numpy as np

    from iscsitrace.analysis.measures.selection import pick

    is_unranked = np.ma.getmaskarray(cycles["latency_ns"])
    return pick(cycles.select(~is_unranked), top=top), cycles.select(is_unranked)


def _show_unranked(cycles: Table, is_document: bool) -> None:
    """How many have no rank: below the table, or beside a document, which is for programs."""
    aborted = cycles.raw("is_aborted").sum()
    click.echo(
        f"tasks without a status, and so without a rank: {len(cycles)} (aborted: {aborted}); "
        "--incomplete instead of --top lists them",
        err=is_document,
    )


def _show_json(trace: Trace, cycles: Table, has_filter: bool) -> None:
    """One document, written row by row: a capture may hold millions of tasks."""
    from iscsitrace.analysis.measures.selection import display_filter

    click.echo(json.dumps(envelope(trace))[:-1] + ', "cycles": [', nl=False)
    separator = "\n"
    for row in cycles.rows():
        if has_filter:
            row["display_filter"] = display_filter(row)
        click.echo(separator + json.dumps(row, allow_nan=False), nl=False)
        separator = ",\n"
    click.echo("\n]}")


def _show(trace: Trace, cycles: Table, has_filter: bool) -> None:
    from iscsitrace.analysis.measures.selection import display_filter

    times = trace.connections.raw("time_first_ns")
    start_ns = int(times.min()) if len(times) else 0
    show_line(f"times in s after the first TCP packet, {cells.date(start_ns if len(times) else None)}; phases in ms")
    rows = list(cycles.rows())
    show_table(
        (
            "cycle",
            "time",
            "stream",
            "LUN",
            "operation",
            "LBA",
            "block size",
            "latency",
            "request",
            "grant",
            "transfer",
            "service",
            "status wait",
            "QD",
            "PDUs",
            "R2Ts",
            "status",
            "frame",
            "flags",
        ),
        [_line(row, start_ns) for row in rows],
    )
    if has_filter:
        show_heading("Display filters")
        for row in rows:
            click.echo(f"cycle {row['cycle']}: {display_filter(row)}")


def _line(row: dict[str, Any], start_ns: int) -> tuple[object, ...]:
    flags = [word for name, word in _FLAGS.items() if row[name]]
    if not row["is_complete"]:
        flags.append("incomplete")
    return (
        row["cycle"],
        cells.seconds(row["command_first_ns"] - start_ns),
        row["connection"],
        row["lun"],
        row["operation"],
        row["lba"],
        cells.size(row["bytes"]),
        *(
            cells.milliseconds(row[name])
            for name in ("latency_ns", "request_ns", "grant_ns", "transfer_ns", "service_ns", "status_wait_ns")
        ),
        row["queue_depth"],
        row["data_pdu_count"],
        row["r2t_count"],
        _status(row["status"]),
        row["command_frame"],
        " ".join(flags),
    )


_STATUSES = {
    0x00: "good",
    0x02: "check condition",
    0x04: "condition met",
    0x08: "busy",
    0x18: "reservation conflict",
    0x28: "task set full",
    0x30: "ACA active",
    0x40: "task aborted",
}


def _status(status: int | None) -> str | None:
    """The name of a SCSI status (SAM-5 section 5.3.1)."""
    return None if status is None else _STATUSES.get(status, f"{status:#04x}")
