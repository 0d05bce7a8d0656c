"""``iscsitrace cycles``: one row per SCSI command, filtered and sorted, as text, CSV or JSON."""

from __future__ import annotations

import click

from iscsitrace.cli import units
from iscsitrace.cli.options import CaptureInput, among, as_rows, equal, joined, takes_captures, takes_filter
from iscsitrace.cli.output import print_csv, writes_text
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.show.line import say
from iscsitrace.show.terminal import show


@click.command(
    cls=SectionedCommand,
    epilog="Example:  iscsitrace cycles -Y 'operation == read && latency > 10ms' --top 20 capture.pcapng",
)
@takes_captures
@as_rows("cycles")
@takes_filter("latency > 10ms && operation == read")
@click.option("--slower", "slower_ns", type=units.Duration(), help="Short for -Y 'latency > TIME'.")
@click.option(
    "--top", type=click.IntRange(min=1), metavar="COUNT", help="Only the COUNT slowest commands, the slowest first."
)
@click.option("--lun", type=click.IntRange(min=0), metavar="LUN", help="Short for -Y 'lun == LUN'.")
@click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="NAME",
    help="Short for -Y 'operation in {NAME}' (read, write ...); repeatable.",
)
@click.option("--block-size", "block_size", type=units.Size(), help="Short for -Y 'bytes == SIZE', like 64K.")
@click.option("--connection", type=click.IntRange(min=0), metavar="N", help="Short for -Y 'connection == N'.")
@click.option("--session", type=click.IntRange(min=0), metavar="N", help="Short for -Y 'session == N'.")
@click.option(
    "--incomplete",
    "is_incomplete",
    is_flag=True,
    help="Short for -Y '!is_complete': commands whose status or data are missing from the capture.",
)
@click.option(
    "--legs",
    "has_legs",
    is_flag=True,
    help="Of several taps: the time in both hosts, in both directions of the network, and held by TCP, instead of "
    "phases.",
)
@click.option("--filter", "has_filter", is_flag=True, help="Add a Wireshark display filter for each command.")
@writes_text
def command(
    capture_input: CaptureInput,
    is_json: bool,
    is_csv: bool,
    row_filter: str | None,
    slower_ns: int | None,
    top: int | None,
    lun: int | None,
    operations: tuple[str, ...],
    block_size: int | None,
    connection: int | None,
    session: int | None,
    is_incomplete: bool,
    has_legs: bool,
    has_filter: bool,
) -> None:
    """Show one line per SCSI command: operation, address, I/O size, the time of each phase, and its frame.

    Phases: request (command to first data), grant (command to first R2T), transfer, then service or status wait (last
    data to status). Idle: the time in which the line of its connection carried no data. PDUs and packets: those with
    data of the command. Flags: S status in the last Data-In, aborted, missing (bytes missing from the capture), rexmt
    (retransmitted or out-of-order data), incomplete.

    A command without a status is the slowest there is: its latency is shown as > the time until it was aborted, its
    connection ended, or the capture did. --top begins with those that never got one. Commands of unknown latency, whose
    packets are missing from the capture, are left out by --slower and --top; --incomplete lists them.

    A filter (-Y) compares columns with values that have units, as Wireshark's display filters do: == != < <= > >= in
    contains && || ! and parentheses. --csv shows the columns, `iscsitrace docs tables` what they mean.
    """
    if is_csv and has_filter:
        raise click.UsageError("--csv prints only the columns of the table; use --json for display filters")
    if is_csv and has_legs:
        raise click.UsageError("--csv prints only the columns of the table cycles; export writes the table legs")
    from iscsitrace.measure import waits
    from iscsitrace.measure.selection import cycles_columns, pick
    from iscsitrace.show import cycles
    from iscsitrace.tables.condition import Condition

    chosen = joined(
        row_filter,
        (
            *([f"latency > {slower_ns}ns"] if slower_ns is not None else []),
            *equal("lun", lun),
            *among("operation", operations),
            *equal("bytes", block_size),
            *equal("connection", connection),
            *equal("session", session),
            *(["!is_complete"] if is_incomplete else []),
        ),
    )
    condition = Condition(chosen, cycles_columns()) if chosen is not None else None
    trace = capture_input.read(("budget",))
    picked, waited = trace.cycles, waits.of_trace(trace.table)
    if condition:
        picked, waited = pick(picked, waited, condition, trace.start_ns)
    unranked = 0
    if top is not None:
        unranked = int((waited.least_ns == waits.UNKNOWN).sum())
        ranked = waited.slowest_first()[:top]
        picked, waited = picked.select(ranked), waited.select(ranked)
    if is_csv:
        print_csv(picked)
    elif is_json:
        for line in cycles.json_lines(trace, picked, waited, has_filter=has_filter, has_legs=has_legs):
            click.echo(line, nl=False)
    else:
        show(cycles.sections(trace, picked, waited, has_filter=has_filter, has_legs=has_legs))
    if unranked:
        if is_csv or is_json:
            # a document is for programs
            capture_input.note(cycles.unranked(unranked))
        else:
            say(cycles.unranked(unranked))
    capture_input.end(trace)
