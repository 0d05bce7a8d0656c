"""What costs most in a dataset, by volume, host, hour ...: commands, parts of the time breakdown, findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iscsitrace.fleet.sql import COMMANDS, PROBLEMS, TIMES, Database
from iscsitrace.measure.distribution import PERCENTILES
from iscsitrace.measure.ranks import VALUES_MIN
from iscsitrace.wording.parts import BY_NAME

_HOUR: Final = "strftime(make_timestamp_ns(({} // 3600000000000) * 3600000000000), '%Y-%m-%d %H:00')"
BY: Final = {
    "volume": "volume",
    "initiator": "initiator",
    "target": "target",
    "lun": "'LUN ' || lun || ' of ' || target",
    "tap": "tap",
    "hour": _HOUR.format("command_first_ns"),
    "session": "tap || ' session ' || coalesce(session::VARCHAR, 'unknown')",
    "operation": "coalesce(operation, 'unknown')",
}
"""What commands can be told apart by, as SQL. Hours are UTC."""
LOSS_BY: Final = {
    **{name: text for name, text in BY.items() if name != "operation"},
    "lun": "coalesce('LUN ' || lun || ' of ' || target, volume)",
    "hour": _HOUR.format("time_first_ns"),
}
"""The same for time lost and findings."""
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
    """Of the latencies and of the waits of commands without a status that took longer, by nearest rank; None where too
    few have one (measure/distribution.py).
    """
    timed_count: int
    """Commands that these percentiles are of."""
    open_count: int
    """Those of them without a status: they rank above all others, and a percentile at one of them is a lower bound."""
    lost_count: int
    """Commands that never got a status, and never will (column ``is_lost``)."""
    error_count: int
    """Commands with a status that a healthy device does not send."""

    @property
    def percentiles(self) -> dict[str, int | None]:
        """As `distribution.percentiles` has them."""
        found = {"n": self.timed_count, "p50": self.p50_ns, "p95": self.p95_ns, "p99": self.p99_ns, "max": self.max_ns}
        return found | ({"open_count": self.open_count} if self.open_count else {})


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
    found = dataset.query(
        _QUERY.format(label=BY[by], conditions=" AND ".join(conditions), percentiles=_PERCENTILES), [tap] if tap else []
    )
    every = [Cost(*row) for row in found.rows]
    every.sort(key=lambda each: (-(getattr(each, COSTS[cost]) or 0), each.label))
    return every[:limit], len(every)


_QUERY: Final = """
WITH chosen AS MATERIALIZED (
    SELECT {label} AS label, tap, data_bytes, latency_ns, is_open, is_lost, is_error, command_first_ns,
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
), slowest AS (
    SELECT label, coalesce(max(latency_ns) FILTER (NOT is_open), 0) AS most_ns FROM chosen GROUP BY label
), waited AS (
    SELECT chosen.*, CASE
        WHEN NOT is_open THEN latency_ns
        -- one that never got a status ranks above all that did; so does one in flight that has waited longer
        WHEN is_lost OR end_ns - command_first_ns > most_ns THEN greatest(end_ns - command_first_ns, most_ns)
    END AS waited_ns FROM chosen JOIN slowest USING (label)
)
SELECT label, count(DISTINCT tap), count(*), sum(data_bytes)::BIGINT, any_value(busy_ns)::BIGINT,
    coalesce(sum(latency_ns), 0)::BIGINT, {percentiles},
    count(waited_ns), count(waited_ns) FILTER (is_open), count(*) FILTER (is_lost), count(*) FILTER (is_error)
FROM waited JOIN busy USING (label) GROUP BY label
"""
_PERCENTILES: Final = ", ".join(
    f"CASE WHEN count(waited_ns) >= {VALUES_MIN.get(name, 1)} THEN quantile_disc(waited_ns, {percent / 100}) END"
    for name, percent in PERCENTILES.items()
)


@dataclass(frozen=True)
class LostTime:
    """The time lost with one value."""

    label: str
    tap_count: int
    session_count: int
    """Sessions that lost time, or have the finding."""
    count: int
    """Findings; stretches by session, logical unit and period, where it is a part of the time."""
    busy_ns: int
    """Busy time of all sessions; of a finding that of the sessions that have it."""
    cost_ns: int
    first_ns: int
    """Its first instant."""

    @property
    def share(self) -> float | None:
        """Share of the busy time; None where there is none."""
        return self.cost_ns / self.busy_ns if self.busy_ns else None


def losses(database: Database, by: str, cost: str, *, limit: int, tap: str | None = None) -> tuple[list[LostTime], int]:
    """The ``limit`` values that lost most, and the number of all that lost time or have the finding.

    ``cost`` is a part of the time breakdown or the name of a finding. The same traffic at two taps counts twice:
    ``tap`` selects one. Raises InputInvalid for a dataset without these tables.
    """
    is_part = cost in BY_NAME
    view = TIMES if is_part else PROBLEMS
    database.require(view)
    query = (_PART if is_part else _FINDING).format(
        view=f"(SELECT *, {LOSS_BY[by]} AS label FROM {view}{' WHERE tap = $tap' if tap else ''})"  # noqa: S608 -- our names
    )
    values = {"cost": cost, **({"tap": tap} if tap else {})}
    found = [LostTime(*row) for row in database.query(query, values).rows]
    found.sort(key=lambda each: (-each.cost_ns, -each.count, each.label))
    return found[:limit], len(found)


_PART: Final = """
SELECT label, count(DISTINCT tap) FILTER (part = $cost), count(DISTINCT (tap, session)) FILTER (part = $cost),
    count(*) FILTER (part = $cost), sum(duration_ns)::BIGINT,
    coalesce(sum(duration_ns) FILTER (part = $cost), 0)::BIGINT AS cost_ns, min(time_first_ns) FILTER (part = $cost)
FROM {view} WHERE is_busy AND label IS NOT NULL GROUP BY label HAVING cost_ns > 0
"""
_FINDING: Final = """
SELECT label, count(DISTINCT tap), count(DISTINCT (tap, session, connection)), count(*), sum(busy_ns)::BIGINT,
    coalesce(sum(cost_ns), 0)::BIGINT, min(time_first_ns)
FROM {view} WHERE name = $cost AND label IS NOT NULL GROUP BY label
"""
