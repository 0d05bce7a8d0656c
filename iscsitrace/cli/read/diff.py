"""``iscsitrace diff``: two captures side by side, and the cause of the gap in throughput."""

from __future__ import annotations

import click

from iscsitrace.cli.options import CaptureInput, as_json
from iscsitrace.outputs.terminal import show, show_json


@click.command(epilog="Example:  iscsitrace diff slow.pcapng fast.pcapng")
@click.argument("capture_a", metavar="A")
@click.argument("capture_b", metavar="B")
@click.option("--session-a", type=click.IntRange(min=0), metavar="NUMBER", help="Session of A (see summary).")
@click.option("--session-b", type=click.IntRange(min=0), metavar="NUMBER", help="Session of B.")
@as_json
@click.option("--no-progress", is_flag=True, help="Show no progress bar.")
def command(
    capture_a: str, capture_b: str, session_a: int | None, session_b: int | None, is_json: bool, no_progress: bool
) -> None:
    """Show what differs between two captures, such as a slow and a fast one, and the effect of each difference.

    One session of each capture is compared: the requested ones, else the two busy ones of the same operation (read or
    write), preferably with the same target. A and B may be the same file.

    The model changes one difference at a time from A's value to B's, in every order; a factor is the average effect on
    the throughput. The factors multiply to the gap of the model; the rest is printed as unexplained. What broke in a
    capture is printed first: an outage is no part of this gap. See docs/diff.md.
    """
    from iscsitrace.analysis.comparison import differences, matching, sides
    from iscsitrace.analysis.findings import examination
    from iscsitrace.outputs import diff

    if (capture_a, capture_b) == ("-", "-"):
        raise click.UsageError("standard input can be read only once")
    traces = [
        CaptureInput((capture,), None, None, None, None, not no_progress).read(sides.NEEDED)
        for capture in (capture_a, capture_b)
    ]
    found_a, found_b = (sides.sides_of(trace.table) for trace in traces)
    a, b = matching.match(found_a, found_b, session_a, session_b)
    why_not = matching.why_not(a, b)
    explanation = differences.explain(a.measured, b.measured) if a.measured and b.measured and not why_not else None
    headlines = [examination.examine(trace.table).headline for trace in traces]
    if is_json:
        show_json(diff.as_dict(traces, headlines, a, b, explanation, why_not))
    else:
        show(diff.sections(traces, headlines, a, b, explanation, why_not))
