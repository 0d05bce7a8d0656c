"""``iscsitrace diagnose``: what limits each session, the evidence, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from iscsitrace.analysis.findings import NEEDED
from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.output import envelope, show_heading, show_json, show_line, show_table
from iscsitrace.cli.record import capture_content
from iscsitrace.cli.record.capture_health import show_health
from iscsitrace.wording import cells
from iscsitrace.wording.parts import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iscsitrace.analysis.findings.examination import Diagnosis, Opinion
    from iscsitrace.analysis.findings.finding import Gain
    from iscsitrace.analysis.groups.jobs.streams import Job
    from iscsitrace.tables.trace import Trace

    # click.ParamType is generic from click 8.3 on, and not before
    _ParamType = click.ParamType[str]
else:
    _ParamType = click.ParamType

EXIT_FINDING = 1
_ANY = "any"
_EXAMINATION = "iscsitrace.analysis.findings.examination"
_OPEN = 1.2
"""Ratio of a gain's high to its low from which both are shown."""


class _FindingName(_ParamType):
    """The name of a finding, or any. The registry of names needs NumPy: it is loaded only to check or complete one."""

    name = "finding"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in _names():
            self.fail(f"{value!r} is not one of {', '.join(map(repr, _names()))}.", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in _names() if name.startswith(incomplete)]


def _names() -> tuple[str, ...]:
    from iscsitrace.analysis.findings.registry import PROBLEMS

    return (*PROBLEMS, _ANY)


@click.command(epilog="Example:  iscsitrace diagnose --fail-on loss --fail-on digest_errors capture.pcapng")
@takes_captures
@as_json
@click.option(
    "--fail-on",
    multiple=True,
    type=_FindingName(),
    metavar="FINDING",
    help="Exit with 1 when this problem is found (any: any problem; docs/diagnosis.md lists the names); repeatable.",
)
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show every connection in addition to sessions.")
def command(capture_input: CaptureInput, is_json: bool, fail_on: tuple[str, ...], is_verbose: bool) -> None:
    """Show what limits each session, where its time went, the problems found with their frames, and how to fix them.

    The time from first command to last status is split into parts without overlap. The limiter is the largest part
    other than transfer. Shares are of the busy time: without idle gaps between bursts of I/O. Findings can overlap:
    each share is the most that its fix can save.
    """
    trace = capture_input.read(NEEDED, loading=_EXAMINATION)
    from iscsitrace.analysis.findings.examination import examine

    diagnosis = examine(trace.table)
    failed = sorted(diagnosis.found if _ANY in fail_on else diagnosis.found & set(fail_on))
    if is_json:
        show_json(envelope(trace) | describe(trace, diagnosis) | {"fail_on": list(fail_on), "failed": failed})
    else:
        capture_content.show_inputs(trace.inputs)
        _show(trace, diagnosis, is_verbose)
    if failed:
        raise click.exceptions.Exit(EXIT_FINDING)


def describe(trace: Trace, diagnosis: Diagnosis) -> dict[str, Any]:
    """What ``--json`` prints after the envelope."""
    from iscsitrace.analysis.measures import capture_health as health

    document = capture_content.describe(trace)
    for kind, opinions in (("session", diagnosis.sessions), ("connection", diagnosis.connections)):
        document[f"{kind}s"] = [
            row | (opinions[row[kind]].as_dict() if row[kind] in opinions else {}) for row in document[f"{kind}s"]
        ]
    return document | {
        "mirrors": [account.as_dict(number) for number, account in enumerate(diagnosis.mirrors)],
        "jobs": [job.as_dict(number) for number, job in enumerate(diagnosis.jobs)],
        "budget": diagnosis.budget,
        "counters": health.by_name(trace.counters),
    }


def _show(trace: Trace, diagnosis: Diagnosis, is_verbose: bool) -> None:
    from iscsitrace.analysis.measures import capture_health as health

    connections = list(trace.connections.rows(("connection", "session", "is_iscsi")))
    shown = [("session", opinion) for opinion in diagnosis.sessions.values()]
    shown += [
        ("connection", opinion)
        for number, opinion in diagnosis.connections.items()
        if is_verbose or _is_one_of_several(connections, number)
    ]
    if not shown:
        show_line("no iSCSI session was found")
    click.echo()
    for _, opinion in shown:
        show_line(opinion.verdict)
    for kind, opinion in shown:
        _show_budget(f"{kind} {opinion.number}", opinion)
        _show_findings(f"{kind} {opinion.number}", opinion)
    for job in diagnosis.jobs:
        _show_job(job)
    losses = health.reaching(health.by_name(trace.counters), "data_loss")
    if losses:
        show_health(losses)


def _show_job(job: Job) -> None:
    """The parallel streams of a job, the first to finish first."""
    behind, alone = cells.seconds(job.first_to_last_ns), cells.percent(job.alone_share)
    show_heading(
        f"Parallel streams of one job: Jain's fairness index {job.jain:.3f}; the last finishes {behind} s after the "
        f"first, and runs alone for {alone} % of the job"
    )
    show_table(
        (
            "connection",
            "session",
            "MB",
            "MB/s",
            "finished after s",
            "retransmitted %",
            "losses",
            "timeouts",
            "cause",
        ),
        [
            (
                stream.run.connection,
                stream.run.session,
                cells.megabytes(stream.run.bytes),
                cells.megabytes(stream.run.bytes_per_s),
                cells.seconds(stream.run.last_ns - job.first_ns),
                cells.percent(stream.evidence.retransmission_rate),
                stream.evidence.loss_count,
                stream.evidence.timeout_count,
                stream.cause.name if stream.cause else None,
            )
            for stream in job.streams
        ],
    )


def _is_one_of_several(connections: list[dict[str, Any]], number: int) -> bool:
    """Whether a connection differs from its session."""
    session = next(row["session"] for row in connections if row["connection"] == number)
    return session is None or sum(row["session"] == session for row in connections) > 1


def _show_budget(label: str, opinion: Opinion) -> None:
    if not opinion.budget or not opinion.jobs_ns:
        return
    pause_ns = sum(opinion.budget.values()) - opinion.jobs_ns
    show_heading(f"Time breakdown of {label}: {cells.seconds(opinion.jobs_ns)} s from first command to last status")
    if pause_ns:
        show_line(f"without {cells.seconds(pause_ns)} s of idle gaps between bursts of I/O")
    parts = opinion.budget | {"initiator_think": opinion.budget["initiator_think"] - pause_ns}
    show_table(
        ("part", "ms", "%"),
        [
            (BY_NAME[part].label, cells.milliseconds(amount), cells.percent(amount / opinion.jobs_ns))
            for part, amount in parts.items()
            if amount
        ],
    )


def _show_findings(label: str, opinion: Opinion) -> None:
    show_heading(f"Findings of {label}, shares of this time" if opinion.findings else f"No problem found in {label}")
    for finding in opinion.findings:
        share = "" if finding.share is None else f", {cells.percent(finding.share)} %"
        show_line(f"{finding.name} ({finding.severity}{share}): {finding.text}")
        for advice, gains in finding.gains_by_advice():
            show_line(f"    - {advice.text}{_gains(gains)}")
        if finding.display_filter:
            show_line(f"    {finding.display_filter}")


def _gains(gains: Sequence[Gain]) -> str:
    """The gains of one advice, in parentheses: ``(model: up to 8.0x with queue depth 8)``."""
    if not gains:
        return ""
    return f" (model: {', '.join(f'{_times(gain)} with {gain.change}' for gain in gains)})"


def _times(gain: Gain) -> str:
    """``up to 5.1x``, or ``about 5.1x (2.2x to 7.8x)`` where the packets leave much open."""
    times = f"{gain.throughput_factor:.1f}x"
    is_open = gain.high > _OPEN * gain.low
    return f"about {times} ({gain.low:.1f}x to {gain.high:.1f}x)" if is_open else f"up to {times}"
