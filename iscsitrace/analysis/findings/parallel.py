"""Connections and sessions that are used together: whether they carry alike, and why the slowest is slow."""

from __future__ import annotations

from collections.abc import Sequence

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import UNEVEN
from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.analysis.session.subject import FRAMES, Subject, frames_in
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording


def find(subject: Subject, jobs: Sequence[Job], cycles: Table) -> list[Finding]:
    """uneven_connections: of a session, among the streams of the jobs that it has part in; of several the worst."""
    own = {row["connection"] for row in subject.connections}
    found = [
        finding
        for job in jobs
        if own & {run.connection for run in job.runs}
        for finding in _uneven(subject, job, cycles)
    ]
    return [max(found, key=lambda finding: finding.share or 0.0)] if found else []


def _uneven(subject: Subject, job: Job, cycles: Table) -> list[Finding]:
    by_bytes, by_time = [run.bytes for run in job.runs], [run.busy_ns for run in job.runs]
    lost_bytes, lost_time = (1 - sum(amounts) / len(amounts) / max(amounts) for amounts in (by_bytes, by_time))
    share = max(lost_bytes, lost_time)
    if share < UNEVEN:
        return []
    if lost_time >= lost_bytes:
        most, least = (pick(job.runs, key=lambda run: run.busy_ns) for pick in (max, min))
        text = f"was at work for {wording.time(most.busy_ns)}, {least.label} for {wording.time(least.busy_ns)}"
    else:
        most, least = (pick(job.runs, key=lambda run: run.bytes) for pick in (max, min))
        text = f"carried {most.bytes / 1e6:.1f} MB, {least.label} {least.bytes / 1e6:.1f} MB at the same time"
    frames = frames_in(cycles, [most.last_row, least.last_row], *FRAMES)
    slowest = job.slowest
    if slowest.cause:
        frames = [slowest.cause.frame, *frames]
    # what no name tells is inferred
    severity = "warning" if job.is_certain else "info"
    found = subject.finding("uneven_connections", None, f"{most.label} {text}; {_together(job)}", frames, severity)
    return [Finding(found.name, found.severity, share, found.text, found.frames)]


def _together(job: Job) -> str:
    """The job in figures, and its slowest stream."""
    slowest = job.slowest
    said = (
        f"{len(job.streams)} streams of one job, Jain's fairness index {job.jain:.2f}: the last finishes "
        f"{wording.time(job.first_to_last_ns)} after the first, and is alone for {wording.percent(job.alone_share)} of "
        "the whole"
    )
    if not slowest.cause:
        return said
    rate = wording.percent(slowest.evidence.retransmission_rate)
    return f"{said}; {slowest.run.label} is slowest, for {slowest.cause.words} ({rate} of its packets sent again)"
