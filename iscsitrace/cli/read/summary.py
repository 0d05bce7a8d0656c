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
def command(capture_input: CaptureInput, is_json: bool, is_verbose: bool) -> None:
    """Show sessions, connections, negotiated parameters, throughput, I/O sizes, latencies, coverage and capture health.

    Rates are over the active time: the time with at least one command in flight. Percentiles are measured values, not
    averages of two.
    """
    trace = capture_input.read(RECOGNISING, loading="iscsitrace.analysis.groups.mirrors.account")
    from iscsitrace.outputs import summary

    document = summary.as_dict(trace)
    if is_json:
        show_json(document)
    else:
        show(summary.sections(document, is_verbose=is_verbose))
