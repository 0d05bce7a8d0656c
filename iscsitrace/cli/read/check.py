"""``iscsitrace check``: coverage and capture health, and comparisons with tshark and the truth of a run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import EXIT_FINDING, CaptureInput, as_json, takes_parts
from iscsitrace.cli.output import writes_text
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.errors import InputInvalid
from iscsitrace.show.terminal import show, show_json

if TYPE_CHECKING:
    from iscsitrace.compare.agreement import Agreement
    from iscsitrace.tables.trace import TraceTables


@click.command(cls=SectionedCommand, epilog="Example:  iscsitrace check --against tshark capture.pcapng")
@takes_parts
@as_json
@click.option(
    "--fail-on",
    type=click.Choice(["data_loss", "warning", "never"]),
    default="data_loss",
    show_default=True,
    help="Exit with 1 when a counter has this severity or a worse one.",
)
@click.option(
    "--against",
    type=click.Choice(["tshark"]),
    help="Compare every PDU with tshark's; exit with 1 for an unexplained difference.",
)
@click.option(
    "--truth",
    "truth_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with the truth file of the run; exit with 1 for any difference.",
)
@click.option(
    "--tap", help="Capture point of the run (initiator, target, target-2 ...); by default from the file name."
)
@writes_text
def command(
    capture_input: CaptureInput,
    is_json: bool,
    fail_on: str,
    against: str | None,
    truth_path: Path | None,
    tap: str | None,
) -> None:
    """Say whether the capture is good enough to diagnose.

    Below is the coverage per connection and direction, and every counter of capture health with advice.

    With --against tshark, every PDU is compared with tshark's. Each difference is printed: explained by evidence about
    that PDU, or unexplained. Needs tshark.

    With --truth, the file that simulate, lab run, initiator or target wrote, commands, parameters and losses are
    compared with the run: every count, tag, size and, for simulated runs, every time. Each difference is printed. The
    truth of a sample (samples/*/truth.json) has totals and parameters.

    With samples of TCP_INFO, in the capture or by --tcp-info, the estimates of cwnd and limited times are compared with
    the kernel's, and the clock of each file is printed with its bounds.
    """
    from iscsitrace import measure
    from iscsitrace.diagnosis import headline
    from iscsitrace.measure import capture_health
    from iscsitrace.show import check

    if tap and not truth_path:
        raise click.UsageError("--tap goes with --truth")
    if tap and "=" in tap:
        raise click.UsageError("check compares the captures of one tap: --tap takes its name alone")
    truth = _read_truth(truth_path) if truth_path else None
    if against:
        capture_input.require_whole_file("check --against tshark")
        from iscsitrace.wireshark.dissect import require_tshark

        require_tshark()
    tables = (*measure.NEEDED, "tcp_info", *(("pdus", "segments") if against else ()))
    # tshark is another program
    trace = capture_input.read(tables, written=None if against else ())
    counters = capture_health.by_name(trace.counters)
    findings = [] if fail_on == "never" else capture_health.reaching(counters, fail_on)
    is_sufficient, verdict = headline.sufficiency(trace.table)
    document: dict[str, Any] = trace.provenance | {
        "is_sufficient": is_sufficient,
        "verdict": verdict,
        "coverage": [part.as_dict() for part in trace.coverage],
        "counters": counters,
        "fail_on": fail_on,
        "findings": [entry["name"] for entry in findings],
    }
    comparison = None
    if against:
        from iscsitrace.compare.second_opinion import compare
        from iscsitrace.wireshark.dissect import dissect

        ports = [row["target_port"] for row in trace.connections.rows(("target_port", "is_iscsi")) if row["is_iscsi"]]
        dissection = dissect(capture_input.sources[0], ports, capture_input.packet_limit)
        comparison = compare(trace.pdus, trace.segments, dissection)
        document["against_tshark"] = check.of_tshark(comparison)
    agreement = None
    if truth is not None:
        agreement = _compared(trace, truth, tap or _tap_of(truth, capture_input))
        document["against_truth"] = asdict(agreement)
    if kernel := _kernel(capture_input, trace):
        document["tcp_info"] = kernel
    if is_json:
        show_json(document)
    else:
        show(check.sections(document, comparison, agreement))
    if findings or (comparison and comparison.unexplained) or (agreement and agreement.differences):
        raise click.exceptions.Exit(EXIT_FINDING)


def _kernel(capture_input: CaptureInput, trace: TraceTables) -> dict[str, Any] | None:
    """The estimates against TCP_INFO; None without samples. They take a second pass, so not over standard input."""
    if not (len(trace.tcp_info) or capture_input.tcp_info) or "-" in capture_input.sources:
        return None
    from iscsitrace.measure import kernel_agreement

    again = capture_input.read(kernel_agreement.NEEDED, written=None)
    senders = kernel_agreement.compare(again.tcp_info, again.window, again.estimated("senders"), again.connections)
    clocks = [
        {"file": name} | asdict(clock) | {"is_known": clock.is_known}
        for name, clock in zip(capture_input.tcp_info, again.clocks, strict=True)
    ]
    return {"clocks": clocks, "senders": [asdict(each) for each in senders]}


def _read_truth(path: Path) -> dict[str, Any]:
    from iscsitrace.compare.agreement import is_sample
    from iscsitrace.compare.truth import check

    try:
        truth = json.loads(path.read_bytes())
    except OSError as error:
        raise InputInvalid(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise InputInvalid(f"{path}: not JSON: {error}") from error
    if not isinstance(truth, dict):
        raise InputInvalid(f"{path}: not the truth file of a run")
    if not is_sample(truth):
        check(truth)
    return truth


def _tap_of(truth: dict[str, Any], capture_input: CaptureInput) -> str | None:
    """The capture point, from the file name."""
    from iscsitrace.compare.truth import TAPS, tap_of

    if "captures" not in truth:
        return None
    found = tap_of(truth, Path(capture_input.sources[0]).name)
    if found is None:
        raise click.UsageError(f"the file name does not tell the capture point: add --tap ({TAPS})")
    return found


def _compared(trace: TraceTables, truth: dict[str, Any], tap: str | None) -> Agreement:
    from iscsitrace.compare.agreement import Tables, compare, compare_sample, is_sample

    if is_sample(truth):
        return compare_sample(trace.table, trace.packet_count, truth)
    tables = Tables(trace.connections, trace.cycles, trace.parameters, trace.packet_count)
    return compare(tables, truth, tap)
