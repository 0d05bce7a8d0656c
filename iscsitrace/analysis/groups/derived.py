"""The tables that are computed from those of a pass: mirrored writes, and streams of one job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from iscsitrace.analysis.groups import jobs, mirrors
from iscsitrace.tables.schema import DERIVED_TABLES
from iscsitrace.tables.table import Table

Source = Callable[[str], Table]

NEEDED: Final = {
    "mirrored_writes": mirrors.NEEDED,
    "mirror_legs": mirrors.NEEDED,
    "streams": (*mirrors.RECOGNISING, *jobs.NEEDED),
}
"""Tables filled on request that each of them takes."""


def make(name: str, source: Source) -> Table:
    """The table of that name; ``source`` is the method ``table`` of a trace read with the tables NEEDED."""
    from iscsitrace.analysis.groups.jobs import streams
    from iscsitrace.analysis.groups.mirrors import account, recognition, tables

    if name not in DERIVED_TABLES:
        raise KeyError(f"no table {name} is computed")
    if name == "streams":
        return streams.table(streams.find(source, recognition.find(source)))
    found = [each.found for each in account.of_trace(source)]
    return tables.mirrored_writes(found, source) if name == "mirrored_writes" else tables.mirror_legs(found, source)
