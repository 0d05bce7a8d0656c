"""The tables computed from those of a pass: events, mirrored writes, and the streams of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from iscsitrace import events
from iscsitrace.relate import jobs, mirrors
from iscsitrace.tables.schema import DERIVED_TABLES
from iscsitrace.tables.table import Source, Table

if TYPE_CHECKING:
    from iscsitrace.tables.trace import TraceTables

NEEDED: Final = {
    "events": events.NEEDED,
    "mirrored_writes": mirrors.NEEDED,
    "mirror_legs": mirrors.NEEDED,
    "streams": (*mirrors.RECOGNISING, *jobs.NEEDED),
}
"""Tables filled on request that each of them needs."""


def of_pass(names: Iterable[str]) -> list[str]:
    """The tables of the pass that these tables are, or are computed from."""
    return list(dict.fromkeys(each for name in names for each in NEEDED.get(name, (name,))))


def table(trace: TraceTables, name: str) -> Table:
    """A table of the pass, or one that is computed from such tables, once."""
    return trace.kept(name, partial(make, name)) if name in DERIVED_TABLES else trace.table(name)


def make(name: str, source: Source) -> Table:
    """The table of that name; ``source`` is the method ``table`` of a trace read with the tables NEEDED."""
    from iscsitrace.events import tables as event_tables
    from iscsitrace.relate.jobs import streams
    from iscsitrace.relate.mirrors import account, recognition
    from iscsitrace.relate.mirrors.writes import mirror_legs, mirrored_writes

    if name not in DERIVED_TABLES:
        raise KeyError(f"no derived table {name}")
    if name == "events":
        return event_tables.events(source)
    if name == "streams":
        return streams.streams(streams.find(source, recognition.find(source)))
    found = [each.found for each in account.of_trace(source)]
    return mirrored_writes(found, source) if name == "mirrored_writes" else mirror_legs(found, source)
