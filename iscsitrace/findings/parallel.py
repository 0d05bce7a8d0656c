"""Connections and sessions that are used in parallel: how evenly, and why the slowest is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np

from iscsitrace.findings import capture
from iscsitrace.findings.case import Case, Groups
from iscsitrace.findings.finding import EVERY_VOLUME, NEXT_LOGIN, WHOLE_HOST, Advice, Found, Observation, Problem
from iscsitrace.measure import connection_counts
from iscsitrace.measure.data_commands import is_whole_transfer
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.session import FRAMES, frames_in
from iscsitrace.relate.jobs.runs import BEGIN
from iscsitrace.relate.jobs.streams import Job
from iscsitrace.tables.partition import Partition
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

UNEVEN: Final = 0.25
"""Least share of the time that parallel connections lose because one carried more than the others: 1 - mean / most. At
this value one of two carries twice as much as the other; round-robin stays far below."""


def _uneven(case: Case) -> Observation | None:
    """The worst of the jobs that the session's connections belong to."""
    jobs_of = case.groups.once(_by_connection)
    jobs = chain.from_iterable(jobs_of.get(row["connection"], ()) for row in case.subject.connections)
    worst = max(jobs, key=lambda each: (each.lost, -each.place), default=None)
    return worst.observation if worst else None


@dataclass(frozen=True)
class _Load:
    """How uneven a job is: all of its sessions have the same finding."""

    place: int
    """Its order among equal ones."""
    job: Job
    groups: Groups

    @cached_property
    def moved(self) -> dict[int, int] | None:
        """Bytes by connection, where some joined the job late: in the longest time with the same several
        connections in use. None where none joined late.

        What carried less because it came later is not uneven; those that were there together are compared.
        """
        soon_ns = self.job.first_ns + BEGIN * self.job.whole_ns
        if all(run.first_ns <= soon_ns for run in self.job.runs):
            return None
        commands = self.groups.once(_commands).rows_of_several(run.connection for run in self.job.runs)
        stages = connection_counts.stages_of(commands.select(commands.each(is_whole_transfer)))
        several = (each for each in stages if each.count > 1)
        longest = max(several, key=lambda each: each.last_ns - each.settled_ns, default=None)
        if longest is None:
            return {}
        sums = np.bincount(longest.owners, longest.sizes)
        return {number: int(sums[number]) if number < len(sums) else 0 for number in longest.connections}

    @cached_property
    def lost(self) -> float:
        """Share of the time that is lost; none where a stream only paused, and went on before the last one finished."""
        if self.moved is not None:
            return _lost_of([*self.moved.values()])
        lost = max(_lost_by(self.job))
        return 0.0 if lost >= UNEVEN and self._goes_on() else lost

    def _goes_on(self) -> bool:
        by_connection = self.groups.once(_commands)
        until_ns = self.job.first_ns + self.job.whole_ns
        for run in self.job.runs:
            starts_ns = by_connection.rows(run.connection).raw("command_first_ns")
            if ((starts_ns > run.last_ns) & (starts_ns < until_ns)).any():
                return True
        return False

    @cached_property
    def observation(self) -> Observation:
        """The facts."""
        return _observation(self.job, self.groups.cycles, self.moved)


def _loads(groups: Groups) -> list[_Load]:
    return [_Load(place, job, groups) for place, job in enumerate(groups.jobs)]


def _commands(groups: Groups) -> Partition:
    return Partition(groups.cycles, groups.cycles.raw("connection"))


def _by_connection(groups: Groups) -> dict[int, list[_Load]]:
    """The jobs of each connection."""
    found: dict[int, list[_Load]] = {}
    for load in groups.once(_loads):
        for run in load.job.runs:
            found.setdefault(run.connection, []).append(load)
    return found


def _carry_unequal(facts: Facts) -> Found:
    """The worst of the jobs of each session, where their bytes are known."""
    lost, is_certain = np.zeros(len(facts)), np.zeros(len(facts), dtype=bool)
    for load in facts.given(Groups).once(_loads):
        own = np.array([run.session for run in load.job.runs if run.session is not None], dtype=np.intp)
        worse = own[load.lost > lost[own]]
        lost[worse], is_certain[worse] = load.lost, load.job.is_certain
    is_found = (lost >= UNEVEN) & (capture.decoded_shares(facts) >= capture.COVERAGE)
    # without names, that they belong together is inferred
    return Found(is_found, share=lost, ranks={"note": ~is_certain})


def _lost_by(job: Job) -> tuple[float, float]:
    """Share of the time that is lost, by bytes and by busy time.

    Bytes stand for time where all are busy. Beside a fast target nothing is in flight for most of the time.
    """
    by_bytes, by_time = [run.bytes for run in job.runs], [run.busy_ns for run in job.runs]
    lost_time = max(by_time) - sum(by_time) / len(by_time)
    return _lost_of(by_bytes), lost_time / max(*by_time, job.whole_ns, 1)


def _lost_of(amounts: Sequence[int]) -> float:
    """1 - mean / most."""
    return 1 - sum(amounts) / len(amounts) / max(amounts) if any(amounts) else 0.0


def _observation(job: Job, cycles: Table, moved: Mapping[int, int] | None) -> Observation:
    lost_bytes, lost_time = _lost_by(job)
    if not moved and lost_time >= lost_bytes:
        most, least = (pick(job.runs, key=lambda run: run.busy_ns) for pick in (max, min))
        text = f"was busy for {wording.time(most.busy_ns)}, {least.label} for {wording.time(least.busy_ns)}"
    else:
        carried = moved or {run.connection: run.bytes for run in job.runs}
        runs = [run for run in job.runs if run.connection in carried]
        most, least = (pick(runs, key=lambda run: carried[run.connection]) for pick in (max, min))
        amounts = [f"{carried[run.connection] / 1e6:.1f} MB" for run in (most, least)]
        text = f"carried {amounts[0]}, {least.label} {amounts[1]} at the same time"
    frames = frames_in(cycles, [most.last_row, least.last_row], *FRAMES)
    slowest = job.slowest
    if slowest.cause:
        frames = [slowest.cause.frame, *frames]
    return Observation(
        f"{most.label} {text}. {_together(job)}",
        frames,
    )


def _together(job: Job) -> str:
    """The evenness of the job, and why its slowest stream is slow."""
    slowest = job.slowest
    said = (
        f"{len(job.streams):,} connections worked in parallel (Jain's fairness index {job.jain:.2f}): the last one "
        f"finished {wording.time(job.first_to_last_ns)} after the first and ran alone for "
        f"{wording.percent(job.alone_share)} of the time"
    )
    if not slowest.cause:
        return said
    rate = wording.percent(slowest.evidence.retransmission_rate)
    return f"{said}. {capital(slowest.run.label)} is slowest because {slowest.cause.words} ({rate} retransmissions)"


UNEVEN_CONNECTIONS: Final = Problem(
    name="uneven_connections",
    meaning="Connections or sessions that are used in parallel carry unequal load: all wait for the one with the most "
    "load or the worst path.",
    condition=f"The others lose at least {wording.percent(UNEVEN)} of the time because the busiest carried more than "
    "the mean (1 - mean / most). The connections ran at the same time and moved data. They belong to one session, "
    "connect the same two nodes, or (`info`) started together with the same kind of commands. Where some joined late, "
    "those are compared that were in use together, in the longest such time.",
    evidence="The loss that made the slowest slow, where there is one; command and status of the last command of the "
    "most and of the least used connection. The share is the most that even load could save.",
    example="Connection 0 carried 2.6 MB, connection 1 0.3 MB at the same time. 2 connections worked in parallel "
    "(Jain's fairness index 0.63): the last one finished 967 µs after the first and ran alone for 4 % of the time.",
    scope="session",
    advice=(
        Advice(
            'Balance by load instead of round-robin: `path_selector "service-time 0"` in multipath.conf.',
            touches=EVERY_VOLUME,
        ),
        Advice(
            "Check whether one path is longer or loses packets: `iscsitrace summary` shows RTT and retransmissions of "
            "each connection, `iscsitrace plot streams` shows the connections together."
        ),
        Advice(
            "After a loss in slow start the congestion window stays small for long: net.ipv4.tcp_congestion_control = "
            "bbr recovers faster. Let each connection take the next block instead of a fixed part, so that the last "
            "one does not delay the job.",
            touches=WHOLE_HOST,
        ),
        Advice(
            "Keep more commands in flight than there are connections: node.session.queue_depth.", touches=NEXT_LOGIN
        ),
    ),
    severity="warning",
    where=_carry_unequal,
    tell=_uneven,
)
