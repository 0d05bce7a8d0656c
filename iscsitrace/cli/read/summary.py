"""``iscsitrace summary``: sessions, negotiated parameters, throughput, latencies and capture health."""

from __future__ import annotations

import click

from iscsitrace.analysis.groups.mirrors import RECOGNISING
from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.outputs.terminal import show, show_json


@click.command(
    epilog="Example:  iscsitrace summary --from 10s --to 20s capture.pcapng",
)
@takes_captures
@as_json
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show the value that each side offered for each key.")
@click.option(
    "--by",
    "names",
    type=click.Choice(("lun", "operation", "initiator", "target", "size", "volume")),
    multiple=True,
    help="Show the commands by this, worst first, instead of the rest; repeatable.",
)
def command(capture_input: CaptureInput, is_json: bool, is_verbose: bool, names: tuple[str, ...]) -> None:
    """Show sessions, connections, negotiated parameters, throughput, I/O sizes, latencies, coverage and capture health.

    Rates are over the active time: the time with at least one command in flight. Percentiles are measured values, not
    averages of two.
    """
    tables = (*RECOGNISING, "budget") if names else RECOGNISING
    trace = capture_input.read(tables, loading="iscsitrace.analysis.groups.mirrors.account")
    from iscsitrace.outputs import summary

    if names and not is_json:
        show(summary.sections_by(trace, names))
        return
    document = summary.as_dict(trace, names)
    if is_json:
        show_json(document)
    else:
        show(summary.sections(document, is_verbose=is_verbose))
