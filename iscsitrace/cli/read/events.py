"""``iscsitrace events``: what happened, one line per event in order of time."""

from __future__ import annotations

import click

from iscsitrace.cli.options import CaptureInput, among, as_rows, equal, joined, takes_captures, takes_filter
from iscsitrace.cli.output import print_csv, writes_text
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.show.terminal import show
from iscsitrace.wording.event_kinds import SEVERITY_OF


@click.command(cls=SectionedCommand, epilog="Example:  iscsitrace events --severity warning --session 0 capture.pcapng")
@takes_captures
@as_rows("events")
@takes_filter("kind == outage || severity >= error")
@click.option("--session", type=click.IntRange(min=0), metavar="N", help="Short for -Y 'session == N'.")
@click.option("--lun", type=click.IntRange(min=0), metavar="LUN", help="Short for -Y 'lun == LUN'.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(list(SEVERITY_OF)),
    metavar="KIND",
    help="Short for -Y 'kind in {KIND}' (outage, login ...; `iscsitrace docs tables events` lists them); repeatable.",
)
@click.option(
    "--severity",
    type=click.Choice(["info", "warning", "error"]),
    default="info",
    help="Short for -Y 'severity >= SEVERITY' (info).",
)
@click.option("--absolute", "is_absolute", is_flag=True, help="Show dates instead of times since the start.")
@click.option("--all", "has_every", is_flag=True, help="Show every event, runs of equal events too.")
@writes_text
def command(
    capture_input: CaptureInput,
    is_json: bool,
    is_csv: bool,
    row_filter: str | None,
    session: int | None,
    lun: int | None,
    kinds: tuple[str, ...],
    severity: str,
    is_absolute: bool,
    has_every: bool,
) -> None:
    """Show what happened as a log, one line each: connections, logins, errors, aborts, outages, missing packets.

    Equal events of one session and LUN that follow one another are one line, with their number and the time of the
    last. The last line is a Wireshark display filter for the frames shown. --json (with a filter for each)
    and --csv have every event.

    A filter (-Y) compares columns with values, as Wireshark's display filters do: == != < <= > >= in contains && || !
    and parentheses. `iscsitrace docs tables` lists the columns of the table events.
    """
    from iscsitrace.events import derived
    from iscsitrace.events.selection import COLUMNS
    from iscsitrace.tables.condition import Condition

    short_forms = (
        *equal("session", session),
        *equal("lun", lun),
        *among("kind", kinds),
        *([f"severity >= {severity}"] if severity != "info" else []),
    )
    chosen = joined(row_filter, short_forms)
    condition = Condition(chosen, COLUMNS) if chosen is not None else None
    trace = capture_input.read(derived.NEEDED["events"], loading=["iscsitrace.show.events"])
    from iscsitrace.show import events

    picked = derived.table(trace, "events")
    if condition:
        picked = picked.select(condition.rows(picked, trace.start_ns))
    if is_csv:
        print_csv(picked)
    elif is_json:
        for line in events.json_lines(trace, picked):
            click.echo(line, nl=False)
    else:
        show(events.sections(trace, picked, is_absolute=is_absolute, has_every=has_every))
    capture_input.end(trace)
