"""``iscsitrace check``: how far the capture can be trusted, by its own account and by tshark's."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.capture_health import show_coverage, show_health
from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.output import envelope, show_heading, show_json, show_line, show_table

if TYPE_CHECKING:
    from iscsitrace.analysis.second_opinion import Comparison

EXIT_FINDING = 1


@click.command(
    short_help="Coverage and capture health.", epilog="Example:  iscsitrace check --against tshark capture.pcapng"
)
@takes_captures
@as_json
@click.option(
    "--fail-on",
    type=click.Choice(["data_loss", "warning", "never"]),
    default="data_loss",
    show_default=True,
    help="Exit with 1 for a counter of that severity or worse.",
)
@click.option(
    "--against",
    type=click.Choice(["tshark"]),
    help="Compare every PDU with tshark's; exit with 1 for a difference that is not explained.",
)
def command(capture_input: CaptureInput, is_json: bool, fail_on: str, against: str | None) -> None:
    """Coverage per connection and direction, and every oddity of the capture with advice.

    With --against tshark every PDU is compared with what tshark shows, and each difference is printed: explained by
    evidence about that PDU, or unexplained. Needs tshark.
    """
    from iscsitrace.analysis import health

    if against:
        capture_input.require_whole_file("check --against tshark")
        from iscsitrace.wireshark import require_tshark

        require_tshark()
    trace = capture_input.read(("pdus", "segments") if against else ())
    counters = health.by_name(trace.counters)
    findings = [] if fail_on == "never" else health.reaching(counters, fail_on)
    document: dict[str, Any] = envelope(trace) | {
        "coverage": [part.as_dict() for part in trace.coverage],
        "counters": counters,
        "fail_on": fail_on,
        "findings": [entry["name"] for entry in findings],
    }
    comparison = None
    if against:
        from iscsitrace.analysis.second_opinion import compare
        from iscsitrace.wireshark import dissect

        ports = [row["target_port"] for row in trace.connections.rows(("target_port", "is_iscsi")) if row["is_iscsi"]]
        dissection = dissect(capture_input.sources[0], ports, capture_input.packet_limit)
        comparison = compare(trace.pdus, trace.segments, dissection)
        document["against_tshark"] = _describe(comparison)
    if is_json:
        show_json(document)
    else:
        show_coverage(document["coverage"])
        show_health(counters)
        if comparison:
            _show(comparison)
    if findings or (comparison and comparison.unexplained):
        raise click.exceptions.Exit(EXIT_FINDING)


def _describe(comparison: Comparison) -> dict[str, Any]:
    return {
        "tshark_version": comparison.tshark_version,
        "our_pdu_count": comparison.our_pdu_count,
        "tshark_pdu_count": comparison.tshark_pdu_count,
        "tshark_pdu_count_in_order_of_arrival": comparison.tshark_pdu_count_in_order_of_arrival,
        "matched_pdu_count": comparison.matched_pdu_count,
        "unexplained_count": len(comparison.unexplained),
        "explained": comparison.explained_counts(),
        "differences": [asdict(difference) for difference in comparison.differences],
    }


def _show(comparison: Comparison) -> None:
    show_heading(f"Against {comparison.tshark_version}")
    show_line(
        f"PDUs: ours {comparison.our_pdu_count}, tshark's {comparison.tshark_pdu_count} "
        f"({comparison.tshark_pdu_count_in_order_of_arrival} without out-of-order reassembly), "
        f"the same {comparison.matched_pdu_count}; differences: {len(comparison.differences)}, "
        f"unexplained: {len(comparison.unexplained)}"
    )
    if comparison.differences:
        show_table(
            ("frame", "tcp.stream", "difference", "explanation", "evidence"),
            [
                (each.frame, each.connection, each.text, each.explanation or "UNEXPLAINED", each.evidence)
                for each in comparison.differences
            ],
        )
