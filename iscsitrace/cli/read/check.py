"""``iscsitrace check``: how far the capture can be trusted, by its own account, tshark's, and the truth of its run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.output import envelope, show_heading, show_json, show_line, show_table
from iscsitrace.cli.record.capture_health import show_coverage, show_health
from iscsitrace.errors import InputInvalid

if TYPE_CHECKING:
    from iscsitrace.analysis.comparison.agreement import Agreement
    from iscsitrace.analysis.comparison.second_opinion import Comparison
    from iscsitrace.tables.trace import Trace

EXIT_FINDING = 1


@click.command(epilog="Example:  iscsitrace check --against tshark capture.pcapng")
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
@click.option(
    "--truth",
    "truth_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with the truth of its run; exit with 1 for any difference.",
)
@click.option(
    "--tap", help="Where a capture of a run was taken (initiator, target, target-2 ...); else its name says so."
)
def command(
    capture_input: CaptureInput,
    is_json: bool,
    fail_on: str,
    against: str | None,
    truth_path: Path | None,
    tap: str | None,
) -> None:
    """Coverage per connection and direction, and every oddity of the capture with advice.

    With --against tshark every PDU is compared with what tshark shows, and each difference is printed: explained by
    evidence about that PDU, or unexplained. Needs tshark.

    With --truth, the file that simulate, lab run, initiator or target wrote, cycles, keys and losses are compared with
    what really happened: every count, tag, size and, of simulated runs, every instant. Each difference is printed.
    """
    from iscsitrace.analysis.measures import capture_health as health

    if tap and not truth_path:
        raise click.UsageError("--tap goes with --truth")
    truth = _read_truth(truth_path) if truth_path else None
    if against:
        capture_input.require_whole_file("check --against tshark")
        from iscsitrace.wireshark.dissect import require_tshark

        require_tshark()
    trace = capture_input.read(("pdus", "segments") if against else ("segments",) if truth else ())
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
        from iscsitrace.analysis.comparison.second_opinion import compare
        from iscsitrace.wireshark.dissect import dissect

        ports = [row["target_port"] for row in trace.connections.rows(("target_port", "is_iscsi")) if row["is_iscsi"]]
        dissection = dissect(capture_input.sources[0], ports, capture_input.packet_limit)
        comparison = compare(trace.pdus, trace.segments, dissection)
        document["against_tshark"] = _describe(comparison)
    agreement = None
    if truth is not None:
        agreement = _hold_against(trace, truth, tap or _tap_of(truth, capture_input))
        document["against_truth"] = asdict(agreement)
    if is_json:
        show_json(document)
    else:
        show_coverage(document["coverage"])
        show_health(counters)
        if comparison:
            _show(comparison)
        if agreement:
            _show_agreement(agreement)
    if findings or (comparison and comparison.unexplained) or (agreement and agreement.differences):
        raise click.exceptions.Exit(EXIT_FINDING)


def _read_truth(path: Path) -> dict[str, Any]:
    from iscsitrace.analysis.comparison.truth import check

    try:
        truth = json.loads(path.read_bytes())
    except OSError as error:
        raise InputInvalid(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise InputInvalid(f"{path}: no JSON: {error}") from error
    if not isinstance(truth, dict):
        raise InputInvalid(f"{path}: no truth of a run")
    check(truth)
    return truth


def _tap_of(truth: dict[str, Any], capture_input: CaptureInput) -> str | None:
    """Where the capture was taken, by its name."""
    from iscsitrace.analysis.comparison.truth import TAPS, tap_of

    if "captures" not in truth:
        return None
    found = tap_of(truth, Path(capture_input.sources[0]).name)
    if found is None:
        raise click.UsageError(f"its name does not say where the capture was taken: add --tap ({TAPS})")
    return found


def _hold_against(trace: Trace, truth: dict[str, Any], tap: str | None) -> Agreement:
    from iscsitrace.analysis.comparison.agreement import Tables, compare

    tables = Tables(trace.connections, trace.cycles, trace.parameters, trace.segments, trace.packet_count)
    return compare(tables, truth, tap)


def _show_agreement(agreement: Agreement) -> None:
    show_heading("Against the truth" + (f", at the {agreement.tap}" if agreement.tap else ""))
    show_line(
        f"compared: {agreement.cycle_count} cycles with {agreement.value_count} values, {agreement.parameter_count} "
        f"parameters, losses at {agreement.loss_count} ends; differences: {len(agreement.differences)}"
    )
    if agreement.differences:
        show_table(
            ("tcp.stream", "of", "difference"),
            [(each.connection, each.subject, each.text) for each in agreement.differences],
        )


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
