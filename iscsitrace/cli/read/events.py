"""``iscsitrace events``: what happened, one line per event in order of time."""

from __future__ import annotations

import click

from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.show.terminal import show
from iscsitrace.wording.event_kinds import SEVERITY_OF


@click.command(cls=SectionedCommand, epilog="Example:  iscsitrace events --severity warning --session 0 capture.pcapng")
@takes_captures
@as_json
@click.option("--session", type=click.IntRange(min=0), metavar="N", help="Only events of this session.")
@click.option("--lun", type=click.IntRange(min=0), metavar="LUN", help="Only events of this logical unit.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(list(SEVERITY_OF)),
    metavar="KIND",
    help="Only this kind (outage, login ...; `iscsitrace docs tables events` lists them); repeatable.",
)
@click.option(
    "--severity",
    type=click.Choice(["info", "warning", "error"]),
    default="info",
    help="Only events of this severity or a worse one (info).",
)
@click.option("--absolute", "is_absolute", is_flag=True, help="Show dates instead of times since the start.")
@click.option("--all", "has_every", is_flag=True, help="Show every event, runs of equal events too.")
def command(
    capture_input: CaptureInput,
    is_json: bool,
    session: int | None,
    lun: int | None,
    kinds: tuple[str, ...],
    severity: str,
    is_absolute: bool,
    has_every: bool,
) -> None:
    """Show what happened as a log, one line each: connections, logins, errors, aborts, outages, missing packets.

    Equal events of one session and LUN that follow one another are one line, with their number and the time of the
    last. The last line is a Wireshark display filter for the frames shown. --json has every event, each with a filter.
    """
    from iscsitrace.events import derived

    trace = capture_input.read(derived.NEEDED["events"], loading=["iscsitrace.show.events"])
    from iscsitrace.events.selection import pick
    from iscsitrace.show import events

    picked = pick(derived.table(trace, "events"), session=session, lun=lun, kinds=kinds, severity=severity)
    if is_json:
        for line in events.json_lines(trace, picked):
            click.echo(line, nl=False)
    else:
        show(events.sections(trace, picked, is_absolute=is_absolute, has_every=has_every))
