"""``iscsitrace diff``: two captures side by side, and the cause of the gap in throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iscsitrace.cli.options import CaptureInput, as_json
from iscsitrace.cli.output import quiet, writes_text
from iscsitrace.show.terminal import show, show_json

if TYPE_CHECKING:
    from iscsitrace.tables.trace import TraceTables

_TCP_INFO = "Samples of a host's TCP_INFO of {}: a time and a line of ss -tinOH each; repeatable."


@click.command(epilog="Example:  iscsitrace diff slow.pcapng fast.pcapng")
@click.argument("capture_a", metavar="A")
@click.argument("capture_b", metavar="B")
@click.option("--session-a", type=click.IntRange(min=0), metavar="NUMBER", help="Session of A (see summary).")
@click.option("--session-b", type=click.IntRange(min=0), metavar="NUMBER", help="Session of B.")
@click.option("--tap-a", "taps_a", multiple=True, metavar="FILE", help="A's traffic at another tap; repeatable.")
@click.option("--tap-b", "taps_b", multiple=True, metavar="FILE", help="B's traffic at another tap; repeatable.")
@click.option("--tcp-info-a", multiple=True, metavar="FILE", help=_TCP_INFO.format("A"))
@click.option("--tcp-info-b", multiple=True, metavar="FILE", help=_TCP_INFO.format("B"))
@as_json
@quiet()
@writes_text
def command(
    capture_a: str,
    capture_b: str,
    session_a: int | None,
    session_b: int | None,
    taps_a: tuple[str, ...],
    taps_b: tuple[str, ...],
    tcp_info_a: tuple[str, ...],
    tcp_info_b: tuple[str, ...],
    is_json: bool,
    is_quiet: bool,
) -> None:
    """Show what differs between two captures, such as a slow and a fast one, and the effect of each difference.

    One session of each capture is compared: the requested ones, else the two busy ones of the same operation (read or
    write), preferably with the same target. A and B may be the same file.

    The model changes one difference at a time from A's value to B's, in every order; a factor is the average effect on
    the throughput. The factors multiply to the gap of the model; the rest is printed as unexplained. What broke in a
    capture is printed first: an outage is no part of this gap. See `iscsitrace docs diff`.

    With the traffic of both at two taps or more, the median latencies are also compared by place: network, target and
    initiator's host.
    """
    from iscsitrace.compare import differences, sides
    from iscsitrace.compare.differences import compare_by_place
    from iscsitrace.diagnosis import examination
    from iscsitrace.show import diff

    if (capture_a, *taps_a, capture_b, *taps_b).count("-") > 1:
        raise click.UsageError("standard input can be read only once")
    traces = [
        _read(CaptureInput((capture, *taps), None, None, None, None, is_quiet, tcp_info), name)
        for name, capture, taps, tcp_info in (
            ("a", capture_a, taps_a, tcp_info_a),
            ("b", capture_b, taps_b, tcp_info_b),
        )
    ]
    found_a, found_b = (sides.sides_of(trace.table) for trace in traces)
    a, b = sides.match(found_a, found_b, session_a, session_b)
    why_not = sides.why_not(a, b)
    explanation = differences.explain(a.measured, b.measured) if a.measured and b.measured and not why_not else None
    headlines = [examination.examine_trace(trace).headline for trace in traces]
    places = compare_by_place(traces[0], traces[1], a.session, b.session)
    if is_json:
        show_json(diff.as_dict(traces, headlines, a, b, explanation, why_not, places))
    else:
        show(diff.sections(traces, headlines, a, b, explanation, why_not, places))


def _read(captures: CaptureInput, name: str) -> TraceTables:
    """One side; its captures are taps of the same traffic."""
    from iscsitrace.compare import sides

    trace = captures.read(sides.NEEDED)
    if len(captures.sources) > 1 and not trace.is_tapped:
        raise click.UsageError(f"--tap-{name}: {captures.sources[0]} and the others are not taps of the same traffic")
    return trace
