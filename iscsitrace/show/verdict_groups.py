"""The verdicts of many sessions as tables: by initiator, target, LUN, volume and hour."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.diagnosis import verdict_groups
from iscsitrace.diagnosis.verdict_groups import ELSEWHERE
from iscsitrace.show.document import Grid, Section, table
from iscsitrace.show.loads import HEADINGS
from iscsitrace.show.shown import HEADLINES
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells
from iscsitrace.wording.parts import BY_NAME

if TYPE_CHECKING:
    from iscsitrace.diagnosis.examination import Diagnosis
    from iscsitrace.diagnosis.verdict_groups import Group, Tally, VerdictGroups
    from iscsitrace.tables.trace import TraceTables

READING: Final = (
    "Worst first: what broke, then by time lost. The number before a headline counts its sessions; elsewhere marks "
    "sessions with a problem that is not here. Sessions that replaced each other count their lost time once."
)
_SHARED: Final = "A session that uses several of them counts in each, with the time of its commands there."
_TALLIES: Final = 3
"""Headlines of a group that are named."""


def sections(
    trace: TraceTables, diagnosis: Diagnosis, by: Sequence[str], sessions: Collection[int] = (), top: int | None = None
) -> Iterator[Section]:
    """A table for each of ``by``, of the ``top`` worst groups; only these ``sessions``, where any are named."""
    found = (find(trace, diagnosis, name, sessions) for name in by)
    yield Section("", ("", READING, *(grid(each, top) for each in found)))


def find(trace: TraceTables, diagnosis: Diagnosis, name: str, sessions: Collection[int] = ()) -> VerdictGroups:
    """The verdicts by one attribute; only these ``sessions``, where any are named."""
    return verdict_groups.find(name, trace.table, diagnosis.stories, sessions)


def as_dict(
    trace: TraceTables, diagnosis: Diagnosis, by: Sequence[str], sessions: Collection[int] = ()
) -> dict[str, list[dict[str, Any]]]:
    """All groups by each of ``by``, for JSON."""
    found = (find(trace, diagnosis, name, sessions) for name in by)
    return {each.name: [group.as_dict() for group in each.groups] for each in found}


def grid(found: VerdictGroups, top: int | None = None) -> Grid:
    """The table of groups, with notes on what it omits."""
    heading, _ = HEADINGS[found.name]
    has_hosts = any(each.host is not None for each in found.groups)
    columns = (heading, *(("initiator",) if has_hosts else ()), "sessions", "headlines", "lost s", "I/O s", "worst")
    rows = [
        (
            cells.short(each.label),
            *((cells.short(each.host),) if has_hosts else ()),
            each.session_count,
            _headlines(each),
            cells.seconds(each.lost_ns or None),
            cells.seconds(each.busy_ns),
            each.worst,
        )
        for each in found.groups[:top]
    ]
    notes = [_SHARED] if found.has_shared and found.name != "hour" else []
    if found.absent_count:
        noun = wording.count(found.absent_count, "session")
        notes.append(f"{noun} without reads and writes {'is' if found.absent_count == 1 else 'are'} not shown.")
    return table(columns, rows, f"Sessions by {heading}", count=len(found.groups), notes=notes)


def _headlines(group: Group) -> str:
    tallies = group.tallies
    more = len(tallies) - _TALLIES
    return ", ".join([*map(_tally, tallies[:_TALLIES]), *([f"{more} more"] if more > 0 else [])])


def _tally(tally: Tally) -> str:
    """``298 latency-bound: queue_depth_low``."""
    limited = f"{BY_NAME[tally.limiter].limited}: " if tally.limiter and tally.name != ELSEWHERE else ""
    return f"{tally.session_count:,} {limited}{HEADLINES.get(tally.name, tally.name)}"
