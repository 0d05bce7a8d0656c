"""``iscsitrace diagnose``: what limits each session, what shows it, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iscsitrace.analysis.findings import NEEDED
from iscsitrace.analysis.findings.diseases import NAMES
from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.output import envelope, show_heading, show_json, show_line, show_table
from iscsitrace.cli.record import capture_content
from iscsitrace.cli.record.capture_health import show_health
from iscsitrace.wording import cells
from iscsitrace.wording.parts import BY_NAME

if TYPE_CHECKING:
    from iscsitrace.analysis.findings.examination import Diagnosis, Opinion
    from iscsitrace.analysis.findings.finding import Finding, Gain
    from iscsitrace.analysis.groups.jobs.streams import Job
    from iscsitrace.tables.trace import Trace

EXIT_FINDING = 1
_ANY = "any"
_EXAMINATION = "iscsitrace.analysis.findings.examination"
_OPEN = 1.2
"""Gains whose most is so many times their least are shown with both."""


@click.command(epilog="Example:  iscsitrace diagnose --fail-on loss --fail-on digest_errors capture.pcapng")
@takes_captures
@as_json
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice((*NAMES, _ANY)),
    metavar="FINDING",
    help="Exit with 1 when that is found (any: anything, docs/diagnosis.md has the names); repeatable.",
)
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show every connection, too, not only sessions.")
def command(capture_input: CaptureInput, is_json: bool, fail_on: tuple[str, ...], is_verbose: bool) -> None:
    """What limits each session, in a sentence; where its time went; findings, with frames that show them, and advice.

    Every nanosecond from first command to last status has one owner, and the limiter is the largest but transfer.
    Shares are of that time without the pauses between jobs. Findings may claim the same time as others: each says
    what its cure could win at most.
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
    """The streams of a job beside each other, the first to finish first."""
    behind, alone = cells.seconds(job.first_to_last_ns), cells.percent(job.alone_share)
    show_heading(
        f"Streams of one job: Jain's fairness index {job.jain:.3f}; the last finishes {behind} s after the first, and "
        f"is alone for {alone} % of the whole"
    )
    show_table(
        (
            "connection",
            "session",
            "MB",
            "MB/s",
            "finished after s",
            "sent again %",
            "losses",
            "timeouts",
            "slow because",
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
    """Whether a connection says more than its session does."""
    session = next(row["session"] for row in connections if row["connection"] == number)
    return session is None or sum(row["session"] == session for row in connections) > 1


def _show_budget(label: str, opinion: Opinion) -> None:
    if not opinion.budget or not opinion.jobs_ns:
        return
    pause_ns = sum(opinion.budget.values()) - opinion.jobs_ns
    show_heading(f"Time of {label}: {cells.seconds(opinion.jobs_ns)} s from first command to last status")
    if pause_ns:
        show_line(f"without pauses between jobs: {cells.seconds(pause_ns)} s more")
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
    show_heading(f"Findings of {label}, share of that time" if opinion.findings else f"No findings of {label}")
    for finding in opinion.findings:
        share = "" if finding.share is None else f", {cells.percent(finding.share)} %"
        show_line(f"{finding.name} ({finding.severity}{share}): {finding.text}")
        for place, advice in enumerate(finding.advice):
            show_line(f"    - {advice}{_gains(finding, place)}")
        if finding.display_filter:
            show_line(f"    {finding.display_filter}")


def _gains(finding: Finding, place: int) -> str:
    """What following an advice would win, in brackets behind it."""
    said = [gain for gain in finding.gains if gain.advice == place]
    if not said:
        return ""
    first, *others = (f"{_times(gain)}{{}} with {gain.change}" for gain in said)
    more = "".join(f", {other.format('')}" for other in others)
    return f" (by the model about {first.format(' times the throughput')}{more})"


def _times(gain: Gain) -> str:
    """``5.1``, or ``5.1 (2.2 to 7.8)`` where the packets leave much open."""
    is_open = gain.high > _OPEN * gain.low
    return f"{gain.throughput_factor:.1f}" + (f" ({gain.low:.1f} to {gain.high:.1f})" if is_open else "")
