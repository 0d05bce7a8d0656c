"""Streams of one job: connections that are at work together and ask for the same; how even, and why one is slow.

Connections of one session, or between the same initiator and target, belong together when they run at the same time.
Others do when they begin together, too, and ask for the same: a program that is striped over several targets, or
several hosts that each carry a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.findings.thresholds import TOGETHER
from iscsitrace.analysis.groups.jobs import runs
from iscsitrace.analysis.groups.jobs.cause import Cause, Evidence
from iscsitrace.analysis.groups.jobs.runs import Run
from iscsitrace.analysis.groups.mirrors.recognition import Mirror
from iscsitrace.tables.schema import CATEGORIES, DERIVED_TABLES
from iscsitrace.tables.table import NO_WORD, Table, null_value

Array = NDArray[Any]
Source = Callable[[str], Table]

BEGIN: Final = 0.1
"""Share of the longest one's time within which streams of one job begin: a program begins them one after the other, and
with a tenth of it unused together they would no longer be one job."""
ALIKE: Final = 2.0
"""How many times the block of another a stream's may be: larger ones are another program's."""
SLOW: Final = 0.9
"""Share of the fastest stream's throughput below which one is slow: streams of equal means that share a line, each with
its losses, differ by a few hundredths over a job."""


@dataclass(frozen=True)
class Stream:
    """One stream of a job."""

    run: Run
    behind_ns: int
    """How long after the first stream it finished."""
    is_slow: bool
    evidence: Evidence
    cause: Cause | None


@dataclass(frozen=True)
class Job:
    """Streams that were one job, the first to finish first."""

    streams: tuple[Stream, ...]
    is_certain: bool
    """Whether their session or their names tell that they belong together; else that is inferred."""

    @property
    def runs(self) -> list[Run]:
        """What each did."""
        return [stream.run for stream in self.streams]

    @property
    def first_ns(self) -> int:
        """The first command."""
        return min(run.first_ns for run in self.runs)

    @property
    def whole_ns(self) -> int:
        """From the first command to the last status."""
        return self.streams[-1].run.last_ns - self.first_ns

    @property
    def bytes(self) -> int:
        """Of all streams."""
        return sum(run.bytes for run in self.runs)

    @property
    def jain(self) -> float:
        """Jain's fairness index of the streams' throughputs."""
        return jain([run.bytes_per_s for run in self.runs])

    @property
    def first_to_last_ns(self) -> int:
        """From the first stream's finish to the last one's."""
        return self.streams[-1].behind_ns

    @property
    def alone_share(self) -> float:
        """Share of the whole after all streams but the last had finished."""
        return (self.streams[-1].run.last_ns - self.streams[-2].run.last_ns) / max(self.whole_ns, 1)

    @property
    def unused_share(self) -> float:
        """Share of the streams' time, were all as long as the whole, that is lost on those that had finished."""
        lasted = [run.last_ns - self.first_ns for run in self.runs]
        return 1 - sum(lasted) / len(lasted) / max(self.whole_ns, 1)

    @property
    def slowest(self) -> Stream:
        """The one of least throughput."""
        return min(self.streams, key=lambda stream: stream.run.bytes_per_s)

    def as_dict(self, number: int) -> dict[str, Any]:
        """For JSON."""
        return {
            "job": number,
            "is_certain": self.is_certain,
            "connections": [run.connection for run in self.runs],
            "bytes": self.bytes,
            "whole_ns": self.whole_ns,
            "jain": self.jain,
            "first_to_last_ns": self.first_to_last_ns,
            "alone_share": self.alone_share,
            "unused_share": self.unused_share,
            "streams": [
                {
                    "connection": stream.run.connection,
                    "session": stream.run.session,
                    "operation": stream.run.operation,
                    "bytes": stream.run.bytes,
                    "bytes_per_s": stream.run.bytes_per_s,
                    "time_first_ns": stream.run.first_ns,
                    "time_last_ns": stream.run.last_ns,
                    "behind_ns": stream.behind_ns,
                    "retransmission_rate": stream.evidence.retransmission_rate,
                    "loss_count": stream.evidence.loss_count,
                    "timeout_count": stream.evidence.timeout_count,
                    "is_slow": stream.is_slow,
                    "cause": stream.cause.name if stream.cause else None,
                    "cause_frame": stream.cause.frame if stream.cause else None,
                }
                for stream in self.streams
            ],
        }


def jain(amounts: Sequence[float]) -> float:
    """Jain's fairness index: 1 where all are equal, 1 / n where one has everything."""
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else 1.0


def find(source: Source, mirrors: Sequence[Mirror] = ()) -> list[Job]:
    """The jobs of several streams, the earliest first; legs of a mirror are no streams of each other."""
    left = sorted(runs.of_trace(source), key=lambda run: (-run.length_ns, run.connection))
    leg_of = {
        session: (number, place)
        for number, mirror in enumerate(mirrors)
        for place, leg in enumerate(mirror.legs)
        for session in leg.sessions
    }
    jobs = []
    while left:
        longest, *others = left
        members = [longest]
        for run in others:
            is_other = all(run.connection != member.connection for member in members)
            if is_other and _is_together(longest, run) and not _is_mirrored(longest, run, leg_of):
                members.append(run)
        if len(members) > 1:
            jobs.append(_job(members, source))
        left = [run for run in others if not any(run is member for member in members)]
    return sorted(jobs, key=lambda job: (job.first_ns, job.runs[0].connection))


def _is_together(longest: Run, run: Run) -> bool:
    overlap_ns = min(longest.last_ns, run.last_ns) - max(longest.first_ns, run.first_ns)
    if overlap_ns < TOGETHER * max(run.length_ns, 1):
        return False
    if _is_related(longest, run):
        return True
    sizes = sorted((longest.block_bytes, run.block_bytes))
    return (
        longest.operation == run.operation
        and sizes[1] <= ALIKE * sizes[0]
        and abs(longest.first_ns - run.first_ns) <= BEGIN * longest.length_ns
    )


def _is_related(one: Run, other: Run) -> bool:
    """Whether both are of one session, or between the same two nodes."""
    if one.session is not None and one.session == other.session:
        return True
    # without the login nobody knows what belongs together but the connections of one session
    return one.has_names and (one.host, one.target) == (other.host, other.target)


def _is_mirrored(one: Run, other: Run, leg_of: dict[int, tuple[int, int]]) -> bool:
    """Whether they are different legs of one mirror."""
    first, second = (leg_of.get(-1 if run.session is None else run.session) for run in (one, other))
    return first is not None and second is not None and first[0] == second[0] and first[1] != second[1]


def _job(members: list[Run], source: Source) -> Job:
    members = sorted(members, key=lambda run: (run.last_ns, run.connection))
    fastest = max(members, key=lambda run: run.bytes_per_s)
    streams = []
    for run in members:
        evidence = Evidence(run, source)
        is_slow = run.bytes_per_s < SLOW * fastest.bytes_per_s
        cause = evidence.cause(fastest) if is_slow else None
        streams.append(Stream(run, run.last_ns - members[0].last_ns, is_slow, evidence, cause))
    return Job(tuple(streams), all(_is_related(members[0], run) for run in members))


def table(jobs: Sequence[Job]) -> Table:
    """A row per stream, as the schema has it."""
    declaration = DERIVED_TABLES["streams"]
    rows = list(_rows(jobs))
    columns = {}
    for column in declaration.columns:
        values = [row[column.name] for row in rows]
        if column.dtype.startswith("category:"):
            words = CATEGORIES[column.dtype.partition(":")[2]]
            codes = [NO_WORD if value is None else words.index(value) for value in values]
            columns[column.name] = np.array(codes, dtype=np.uint8)
        else:
            stored = [null_value(column.dtype) if value is None else value for value in values]
            columns[column.name] = np.array(stored, dtype=column.dtype)
    return Table(declaration, columns, words=CATEGORIES)


def _rows(jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
    for number, job in enumerate(jobs):
        for stream in job.streams:
            run, evidence, cause = stream.run, stream.evidence, stream.cause
            yield {
                "job": number,
                "connection": run.connection,
                "session": run.session,
                "to_target": run.to_target,
                "bytes": run.bytes,
                "time_first_ns": run.first_ns,
                "time_last_ns": run.last_ns,
                "bytes_per_s": round(run.bytes_per_s),
                "behind_ns": stream.behind_ns,
                "retransmitted_packets": evidence.retransmitted_packets,
                "packets": evidence.packets,
                "loss_count": evidence.loss_count,
                "timeout_count": evidence.timeout_count,
                "is_slow": stream.is_slow,
                "cause": cause.name if cause else None,
                "cause_time_ns": cause.time_ns if cause else None,
                "cause_frame": cause.frame if cause else None,
            }
