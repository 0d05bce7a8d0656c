"""``iscsitrace mirrors``: sessions that carry the same writes, and the side that each write waited for."""

from __future__ import annotations

import click

from iscsitrace.cli import units
from iscsitrace.cli.options import CaptureInput, as_rows, takes_captures
from iscsitrace.cli.output import print_csv, writes_text
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.relate.mirrors import NEEDED
from iscsitrace.show.terminal import show, show_json

_ROWS = 20


@click.command(
    cls=SectionedCommand, epilog="Example:  iscsitrace mirrors --slower 10ms --top 5 --filter capture.pcapng"
)
@takes_captures
@as_rows("mirrored_writes")
@click.option("--slower", "slower_ns", type=units.Duration(), help="Only writes with a skew above TIME, like 10ms.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Only the COUNT writes with the largest skew, the largest first (20; all with --json or --csv).",
)
@click.option("--filter", "has_filter", is_flag=True, help="Add a Wireshark display filter for each write.")
@writes_text
def command(
    capture_input: CaptureInput,
    is_json: bool,
    is_csv: bool,
    slower_ns: int | None,
    top: int | None,
    has_filter: bool,
) -> None:
    """Show sessions that carry the same writes, as a software RAID1 over iSCSI targets does, and the delay they add.

    A mirrored write is the smallest set of commands that covers the same blocks on every side. Its skew is the time
    from completion on the first side to completion on the last. The cause is the part of the time breakdown in which
    both sides differ most.
    """
    if is_csv and has_filter:
        raise click.UsageError("--csv prints only the columns of the table; use --json for display filters")
    trace = capture_input.read(NEEDED, loading=["iscsitrace.relate.mirrors.account", "iscsitrace.show.mirrors"])
    from iscsitrace.relate.mirrors import account
    from iscsitrace.relate.mirrors.writes import largest_skews, mirror_legs, mirrored_writes
    from iscsitrace.show import mirrors

    accounts = account.of_trace(trace.table)
    found = [each.found for each in accounts]
    every, sides = mirrored_writes(found, trace.table), mirror_legs(found, trace.table)
    most = top or (None if is_json or is_csv else _ROWS)
    mirrored = largest_skews(every, slower_ns=slower_ns, top=most)
    if is_csv:
        print_csv(mirrored)
    elif is_json:
        show_json(mirrors.as_dict(trace, accounts, mirrored, sides, has_filter=has_filter))
    else:
        show(mirrors.sections(trace, accounts, mirrored, sides, len(every), has_filter=has_filter))
