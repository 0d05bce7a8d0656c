"""A period of a ring to its rows of ``findings``, ``events`` and ``time_breakdown`` (tables/schema/dataset.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import numpy as np

from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.events import derived
from iscsitrace.findings.finding import Finding
from iscsitrace.measure import busy
from iscsitrace.measure.budget import is_of_session
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import distinct
from iscsitrace.tables.passes import Period
from iscsitrace.tables.schema import CATEGORIES, DATASET_TABLES
from iscsitrace.tables.table import Array, Table, null_value
from iscsitrace.tables.trace import TraceTables

_UINT32_NULL: Final = null_value("uint32")
_UINT64_NULL: Final = null_value("uint64")
_INT64_NULL: Final = null_value("int64")


def tables_of(period: Period, names: Collection[str]) -> dict[str, Table]:
    """The tables of these names that are made of periods."""
    made = {"findings": findings, "events": events, "time_breakdown": time_breakdown}
    return {name: make(period) for name, make in made.items() if name in names}


def findings(period: Period) -> Table:
    """What a diagnosis of the period finds: of stories, then of sessions."""
    trace = period.trace
    diagnosis = examine(trace.table)
    connections = _first_connections(trace)
    rows = [
        _row(period, finding, connections.get(number, alone), number, busy_ns)
        for finding, number, alone, busy_ns in _found(diagnosis)
    ]
    return _table("findings", rows)


def _found(diagnosis: Diagnosis) -> Iterator[tuple[Finding, int | None, int | None, int]]:
    """Each finding once, its session, or the connection of a story without one, and the busy time."""
    for story in diagnosis.stories:
        numbers = story.story.numbers
        alone = None if numbers else story.story.connections[0]["connection"]
        busy_ns = sum(diagnosis.sessions[number].jobs_ns for number in numbers if number in diagnosis.sessions)
        for finding in story.findings:
            own = finding.sessions or numbers
            yield finding, own[-1] if own else None, alone, busy_ns
    for number, opinion in diagnosis.sessions.items():
        for finding in opinion.findings:
            # those of its story were listed
            if finding.problem.scope != "story":
                yield finding, number, None, opinion.jobs_ns


def _row(period: Period, finding: Finding, connection: int | None, session: int | None, busy_ns: int) -> dict[str, Any]:
    firsts = [first for first, _ in finding.spans]
    lasts = [last for _, last in finding.spans]
    return {
        # a story may have begun before
        "time_first_ns": max(min(firsts, default=period.last_ns), period.from_ns),
        "time_last_ns": max(lasts, default=period.last_ns),
        "session": _UINT32_NULL if session is None else session,
        "sessions": " ".join(map(str, finding.sessions)),
        "connection": _UINT32_NULL if connection is None else connection,
        "lun": finding.luns[0] if len(finding.luns) == 1 else _UINT64_NULL,
        "name": finding.name,
        "rank": CATEGORIES["finding_rank"].index(finding.rank),
        "severity": CATEGORIES["severity"].index(finding.severity),
        "is_leading": finding.leads,
        "cost_ns": _INT64_NULL if finding.cost_ns is None else round(finding.cost_ns),
        "busy_ns": busy_ns,
        "text": finding.text,
        "advice": " ".join(finding.advice),
        "frame": finding.frames[0] if finding.frames else _UINT64_NULL,
        "frames": " ".join(map(str, finding.frames)),
    }


def _first_connections(trace: TraceTables) -> dict[int | None, int]:
    """The first connection of each session."""
    found: dict[int | None, int] = {}
    for row in trace.connections.rows(("connection", "session")):
        if row["session"] is not None:
            found.setdefault(row["session"], row["connection"])
    return found


def events(period: Period) -> Table:
    """The events of the period; commands have the ring's numbers."""
    found = derived.table(period.trace, "events")
    found = found.select(found.raw("time_ns") >= period.from_ns)
    data = {column.name: found.raw(column.name) for column in found.columns}
    is_known = known(found, "cycle")
    data["cycle"] = data["cycle"].copy()
    data["cycle"][is_known] = period.cycle_numbers[data["cycle"][is_known]]
    data["event"] = np.arange(len(found), dtype=np.uint32)
    return Table(DATASET_TABLES["events"], data, None, CATEGORIES)


def time_breakdown(period: Period) -> Table:
    """The time of each session by logical unit and part."""
    trace = period.trace
    budget = trace.budget
    is_wanted = is_of_session(budget)
    first_ns, last_ns = (budget.raw(f"time_{end}_ns")[is_wanted] for end in ("first", "last"))
    session = budget.raw("session")[is_wanted].astype(np.int64)
    place, luns = _luns(trace, session, budget.raw("cycle")[is_wanted], known(budget, "cycle")[is_wanted])
    part = budget.raw("part")[is_wanted].astype(np.int64)
    is_busy = budget.each(busy.uses)[is_wanted] == busy.BUSY
    order = np.lexsort((first_ns, is_busy, part, place, session))
    keys = np.stack((session, place, part, is_busy))[:, order]
    starts = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))) if len(order) else order
    session, place, part, used = keys[:, starts]

    def gathered(function: np.ufunc, values: Array) -> Array:
        return function.reduceat(values[order], starts) if len(order) else values

    data = {
        "session": session.astype(np.uint32),
        "lun": luns[place],
        "part": part.astype(np.uint8),
        "is_busy": used.astype(bool),
        "time_first_ns": gathered(np.minimum, first_ns),
        "time_last_ns": gathered(np.maximum, last_ns),
        "duration_ns": gathered(np.add, last_ns - first_ns),
    }
    return Table(DATASET_TABLES["time_breakdown"], data, None, CATEGORIES)


def _luns(trace: TraceTables, session: Array, cycle: Array, is_known: Array) -> tuple[Array, Array]:
    """The logical unit of stretches of time, as places in the second array.

    It is that of the command that waits, else the only one that the session reads or writes.
    """
    cycles = trace.cycles
    has_lun = known(cycles, "lun")
    luns, place_of_lun = distinct(cycles.raw("lun")[has_lun])
    unknown = len(luns)
    of_cycles = np.full(len(cycles), unknown, dtype=np.int64)
    of_cycles[has_lun] = place_of_lun
    place = np.full(len(session), unknown, dtype=np.int64)
    place[is_known] = of_cycles[cycle[is_known]]
    has_data = cycles.each(is_data_command) & has_lun & known(cycles, "session")
    pairs, _ = distinct(cycles.raw("session")[has_data].astype(np.int64) * (unknown + 1) + of_cycles[has_data])
    numbers, firsts, counts = np.unique(pairs // (unknown + 1), return_index=True, return_counts=True)
    only = np.full(int(max(session.max(initial=-1), numbers.max(initial=-1))) + 1, unknown, dtype=np.int64)
    only[numbers[counts == 1]] = pairs[firsts[counts == 1]] % (unknown + 1)
    return np.where(place == unknown, only[session], place), np.append(luns, np.uint64(_UINT64_NULL))


def _table(name: str, rows: list[dict[str, Any]]) -> Table:
    declaration = DATASET_TABLES[name]
    data: dict[str, Any] = {}
    for column in declaration.columns:
        values = [row[column.name] for row in rows]
        dtype = "uint8" if column.dtype.startswith("category:") else column.dtype
        data[column.name] = values if dtype == "str" else np.array(values, dtype=dtype)
    return Table(declaration, data, None, CATEGORIES)
