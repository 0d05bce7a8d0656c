"""``iscsitrace summary``: sessions, negotiated parameters, throughput, latencies and capture health."""

from __future__ import annotations

import click

from iscsitrace.cli.options import COMMAND_ATTRIBUTES, CaptureInput, as_json, by, takes_captures
from iscsitrace.cli.output import writes_text
from iscsitrace.cli.read.baselines import Baseline, takes_yardsticks, yardsticks
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.relate.mirrors import RECOGNISING
from iscsitrace.show.terminal import show, show_json

TOP = 20
"""Rows by session or connection that are shown by default."""


@click.command(
    cls=SectionedCommand,
    epilog="Example:  iscsitrace summary --from 10s --to 20s capture.pcapng",
)
@takes_captures
@as_json
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show the value that each side offered for each key.")
@by(COMMAND_ATTRIBUTES, "the commands by this, the worst first, instead of the rest")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=TOP,
    show_default=True,
    metavar="COUNT",
    help="Show only COUNT rows of tables by session or connection, the busiest first where there are more; "
    "with --by the COUNT worst.",
)
@takes_yardsticks
@writes_text
def command(
    capture_input: CaptureInput,
    is_json: bool,
    is_verbose: bool,
    names: tuple[str, ...],
    top: int,
    link_bps: int | None,
    baselines: tuple[Baseline, ...],
) -> None:
    """Show sessions, connections, negotiated parameters, throughput, I/O sizes, latencies, coverage and capture health.

    Rates are those of the commands that read, write or erase data, over the active time: the time with at least one of
    them in flight. Percentiles are measured values, not averages of two.

    Of many sessions the busiest are shown. The JSON document has them all.
    """
    tables = (*RECOGNISING, "budget") if names else RECOGNISING
    trace = capture_input.read(tables, loading=["iscsitrace.show.summary"])
    from iscsitrace.show import summary

    if names and not is_json:
        if link_bps is not None or baselines:
            raise click.UsageError("--link-rate and --socket compare sessions: use them without --by, or with --json")
        show(summary.sections_by(trace, names, top))
        capture_input.end(trace)
        return
    document = summary.as_dict(trace, names, yardsticks(link_bps, baselines))
    if is_json:
        show_json(document)
    else:
        show(summary.sections(document, top, is_verbose=is_verbose))
    capture_input.end(trace)
