"""Streams of one job: connections that run together with the same workload; how even they are, and why one is slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.relate.jobs import runs, together
from iscsitrace.relate.jobs.cause import Cause, Evidence
from iscsitrace.relate.jobs.runs import Run
from iscsitrace.relate.mirrors.recognition import Mirror
from iscsitrace.tables.partition import ByConnection
from iscsitrace.tables.schema import CATEGORIES, DERIVED_TABLES
from iscsitrace.tables.table import NO_WORD, Source, Table, null_value

SLOW: Final = 0.9
"""Share of the fastest stream's throughput below which a stream is slow: equal streams that share a line differ by a
few percent over a job."""


@dataclass(frozen=True)
class Stream:
    """One stream of a job."""

    run: Run
    behind_ns: int
    """Time from the first stream's finish to its own."""
    evidence: Evidence
    faster: Run | None
    """The fastest stream, if this one is slow beside it."""

    @property
    def is_slow(self) -> bool:
        """Whether it is slow beside the fastest stream."""
        return self.faster is not None

    @cached_property
    def cause(self) -> Cause | None:
        """Why it is slow; None where it is not, or where the packets do not show it."""
        return self.evidence.cause(self.faster) if self.faster else None


@dataclass(frozen=True)
class Job:
    """The streams of one job, the first to finish first."""

    streams: tuple[Stream, ...]
    is_certain: bool
    """Whether their session or names show that they belong together; else this is inferred."""

    @cached_property
    def runs(self) -> list[Run]:
        """The runs of the streams."""
        return [stream.run for stream in self.streams]

    @property
    def first_ns(self) -> int:
        """Time of the first command."""
        return min(run.first_ns for run in self.runs)

    @property
    def whole_ns(self) -> int:
        """From the first command to the last status."""
        return self.streams[-1].run.last_ns - self.first_ns

    @property
    def bytes(self) -> int:
        """Bytes of all streams."""
        return sum(run.bytes for run in self.runs)

    @cached_property
    def jain(self) -> float:
        """Jain's fairness index of the streams' throughputs."""
        return jain([run.bytes_per_s for run in self.runs])

    @property
    def first_to_last_ns(self) -> int:
        """From the first stream's finish to the last one's."""
        return self.streams[-1].behind_ns

    @property
    def alone_share(self) -> float:
        """Share of the whole time in which only the last stream ran."""
        return (self.streams[-1].run.last_ns - self.streams[-2].run.last_ns) / max(self.whole_ns, 1)

    @property
    def unused_share(self) -> float:
        """Share of all streams' time in which they had finished already: 1 - mean time to finish / the whole."""
        lasted = [run.last_ns - self.first_ns for run in self.runs]
        return 1 - sum(lasted) / len(lasted) / max(self.whole_ns, 1)

    @cached_property
    def slowest(self) -> Stream:
        """The stream of least throughput."""
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
    """The jobs of several streams, the earliest first; the sides of a mirror are not streams of one job."""
    tables = ByConnection(source)
    found = runs.of_trace(source)
    jobs = [
        _job([found[place] for place in own], tables, is_certain=together.are_related(found, own))
        for own in together.groups(found, mirrors)
    ]
    return sorted(jobs, key=lambda job: (job.first_ns, job.runs[0].connection))


def _job(members: list[Run], tables: ByConnection, *, is_certain: bool) -> Job:
    members = sorted(members, key=lambda run: (run.last_ns, run.connection))
    fastest = max(members, key=lambda run: run.bytes_per_s)
    slow_bytes_per_s = SLOW * fastest.bytes_per_s
    streams = tuple(
        Stream(
            run,
            run.last_ns - members[0].last_ns,
            Evidence(run, tables),
            fastest if run.bytes_per_s < slow_bytes_per_s else None,
        )
        for run in members
    )
    return Job(streams, is_certain)


def streams(jobs: Sequence[Job]) -> Table:
    """A row per stream."""
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
