"""The table ``streams`` of the schema, from the streams of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from iscsitrace.analysis.groups.jobs.streams import Job
from iscsitrace.tables.schema import CATEGORIES, DERIVED_TABLES
from iscsitrace.tables.table import NO_WORD, Table, null_value


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
