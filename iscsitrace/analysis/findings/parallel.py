"""Connections and sessions that are used together: whether they carry alike, and why the slowest is slow."""

from __future__ import annotations

from typing import Final

from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Advice, Observation, Problem
from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.analysis.session.subject import FRAMES, frames_in
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

UNEVEN: Final = 0.25
"""Share of the time that connections used together lose because one carried more than the rest: 1 - mean / most. At a
quarter, one of two carries twice what the other does; those dealt to by turn stay far below."""


def _uneven(case: Case) -> Observation | None:
    """Among the streams of the jobs that a session has part in; of several jobs the worst."""
    own = {row["connection"] for row in case.subject.connections}
    jobs = [job for job in case.groups.jobs if own & {run.connection for run in job.runs}]
    worst = max(jobs, key=_lost, default=None)
    return _observation(worst, case.groups.cycles) if worst and _lost(worst) >= UNEVEN else None


def _lost(job: Job) -> float:
    return max(_lost_by(job))


def _lost_by(job: Job) -> tuple[float, float]:
    """Share of the time that is lost by bytes, and by time at work."""
    by_bytes, by_time = [run.bytes for run in job.runs], [run.busy_ns for run in job.runs]
    lost_bytes, lost_time = (1 - sum(amounts) / len(amounts) / max(amounts) for amounts in (by_bytes, by_time))
    return lost_bytes, lost_time


def _observation(job: Job, cycles: Table) -> Observation:
    lost_bytes, lost_time = _lost_by(job)
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
    return Observation(
        f"{most.label} {text}; {_together(job)}",
        frames,
        share=max(lost_bytes, lost_time),
        # what no name tells is inferred
        severity="warning" if job.is_certain else "info",
    )


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


UNEVEN_CONNECTIONS: Final = Problem(
    name="uneven_connections",
    meaning="Connections (or sessions) that are used together carry unequal amounts: all wait for the one that has "
    "most to do or the worst path.",
    condition=f"The busiest carried so much more than the mean that {wording.percent(UNEVEN)} of the time is lost on "
    "the others (1 - mean / most), of connections that ran at the same time and have moved data: of one session, "
    "between the same two nodes, or (`info`) begun together with the same kind of tasks.",
    evidence="The loss that made the slowest slow, where one did; command and status of the last task of the most and "
    "of the least used. The share is what an even dealing could win at most.",
    is_session_only=True,
    advice=(
        Advice('Deal by load and not by turn: `path_selector "service-time 0"` in multipath.conf.'),
        Advice(
            "See whether one path is longer or loses packets: rtt and retransmissions of each in `iscsitrace "
            "summary`, `iscsitrace plot streams` beside each other."
        ),
        Advice(
            "A loss in slow start fixes a window low for long: net.ipv4.tcp_congestion_control = bbr grows out of it, "
            "and streams that take what is next (not a fixed part each) lose less to the last one."
        ),
        Advice("More tasks outstanding than connections: node.session.queue_depth."),
    ),
    observe=_uneven,
)

PROBLEMS: Final = (UNEVEN_CONNECTIONS,)
