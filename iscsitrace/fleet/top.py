"""What costs most in a dataset: the commands by volume, host, hour ... in order of one of their costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iscsitrace.fleet.sql import COMMANDS, Database

BY: Final = {
    "volume": "volume",
    "initiator": "initiator",
    "target": "target",
    "lun": "'LUN ' || lun || ' of ' || target",
    "tap": "tap",
    "hour": "strftime(make_timestamp_ns((command_first_ns // 3600000000000) * 3600000000000), '%Y-%m-%d %H:00')",
    "session": "tap || ' session ' || coalesce(session::VARCHAR, 'unknown')",
    "operation": "coalesce(operation, 'unknown')",
}
"""What commands can be told apart by, as SQL. Hours are UTC."""
COSTS: Final = {
    "latency": "latency_ns",
    "busy": "busy_ns",
    "bytes": "bytes",
    "commands": "command_count",
    "p50": "p50_ns",
    "p99": "p99_ns",
    "max": "max_ns",
    "errors": "error_count",
    "no-status": "lost_count",
}
"""The columns of :class:`Cost` by which it is ordered, the greatest first."""


@dataclass(frozen=True)
class Cost:
    """The commands with one value."""

    label: str
    tap_count: int
    command_count: int
    bytes: int
    """Payload transferred."""
    busy_ns: int
    """Time with at least one of them in flight."""
    latency_ns: int
    """Sum of the latencies of those with a status."""
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    """Of these latencies, by nearest rank."""
    lost_count: int
    """Commands that never got a status, and never will (column ``is_lost``)."""
    error_count: int
    """Commands with a status that a healthy device does not send."""


def top(dataset: Path | Database, by: str, cost: str, *, limit: int, tap: str | None = None) -> tuple[list[Cost], int]:
    """The ``limit`` values with the greatest cost, and the number of all values.

    All but ``operation`` have only the commands that read, write or erase data. The same traffic at two taps counts
    twice: ``tap`` selects one. Raises InputInvalid for a dataset without the tables of commands.
    """
    if isinstance(dataset, Path):
        with Database(dataset) as database:
            return top(database, by, cost, limit=limit, tap=tap)
    dataset.require(COMMANDS)
    conditions = ["label IS NOT NULL", *(["is_data"] if by != "operation" else []), *(["tap = ?"] if tap else [])]
    found = dataset.query(_QUERY.format(label=BY[by], conditions=" AND ".join(conditions)), [tap] if tap else [])
    every = [Cost(*row) for row in found.rows]
    every.sort(key=lambda each: (-(getattr(each, COSTS[cost]) or 0), each.label))
    return every[:limit], len(every)


_QUERY: Final = """
WITH chosen AS MATERIALIZED (
    SELECT {label} AS label, tap, data_bytes, latency_ns, is_lost, is_error, command_first_ns,
        -- how long others were in flight is not known
        CASE WHEN status_ns IS NOT NULL OR is_open THEN end_ns ELSE command_first_ns END AS end_ns
    FROM commands WHERE {conditions}
), reached AS (
    SELECT label, command_first_ns, end_ns, max(end_ns) OVER (
        PARTITION BY label ORDER BY command_first_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached_ns FROM chosen
), busy AS (
    SELECT label,
        sum(greatest(end_ns - greatest(command_first_ns, coalesce(reached_ns, command_first_ns)), 0)) AS busy_ns
    FROM reached GROUP BY label
)
SELECT label, count(DISTINCT tap), count(*), sum(data_bytes)::BIGINT, any_value(busy_ns)::BIGINT,
    coalesce(sum(latency_ns), 0)::BIGINT, quantile_disc(latency_ns, 0.5), quantile_disc(latency_ns, 0.95),
    quantile_disc(latency_ns, 0.99), max(latency_ns),
    count(*) FILTER (is_lost), count(*) FILTER (is_error)
FROM chosen JOIN busy USING (label) GROUP BY label
"""
