"""Where a dataset loses time: one part of the time breakdown, or one finding, by volume, host, hour ..."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from iscsitrace.fleet.sql import PROBLEMS, TIMES, Database
from iscsitrace.wording.parts import BY_NAME

BY: Final = {
    "volume": "volume",
    "initiator": "initiator",
    "target": "target",
    "lun": "coalesce('LUN ' || lun || ' of ' || target, volume)",
    "tap": "tap",
    "hour": "strftime(make_timestamp_ns((time_first_ns // 3600000000000) * 3600000000000), '%Y-%m-%d %H:00')",
    "session": "tap || ' session ' || coalesce(session::VARCHAR, 'unknown')",
}
"""What time and findings can be told apart by, as SQL. Hours are UTC."""


@dataclass(frozen=True)
class Loss:
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


def losses(database: Database, by: str, cost: str, *, limit: int, tap: str | None = None) -> tuple[list[Loss], int]:
    """The ``limit`` values that lost most, and the number of all that lost time or have the finding.

    ``cost`` is a part of the time breakdown or the name of a finding. The same traffic at two taps counts twice:
    ``tap`` selects one. Raises InputInvalid for a dataset without these tables.
    """
    is_part = cost in BY_NAME
    view = TIMES if is_part else PROBLEMS
    database.require(view)
    query = (_PART if is_part else _FINDING).format(
        view=f"(SELECT *, {BY[by]} AS label FROM {view}{' WHERE tap = $tap' if tap else ''})"  # noqa: S608 -- our names
    )
    values = {"cost": cost, **({"tap": tap} if tap else {})}
    found = [Loss(*row) for row in database.query(query, values).rows]
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
