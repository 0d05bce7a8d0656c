"""The report on captures: a trace and its diagnosis as a document."""

from __future__ import annotations

from typing import Final

import numpy as np

from iscsitrace.analysis.findings import NEEDED
from iscsitrace.analysis.findings.examination import Diagnosis, Opinion, examine
from iscsitrace.errors import InputInvalid
from iscsitrace.outputs.document import Grid, limited
from iscsitrace.outputs.remedies import Remedies
from iscsitrace.plots import inline
from iscsitrace.report import chapters, figures, modelled, sections
from iscsitrace.report.document import Document
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import cells

__all__ = ["describe", "needed"]

IN_FULL: Final = 3
"""Sessions, besides the first, that are shown in full."""
LISTED: Final = 24
"""Most rows of the table of other sessions."""


def needed(is_large: bool, has_pictures: bool = True) -> tuple[str, ...]:
    """The tables that a trace must be read with."""
    return tuple(dict.fromkeys((*NEEDED, *modelled.NEEDED, *(figures.needed(is_large) if has_pictures else ()))))


def describe(trace: Trace, *, session: int | None = None, has_pictures: bool = True) -> Document:
    """The document on a session, by default the one that moved most bytes; InputInvalid for an unknown session."""
    diagnosis = examine(trace.table)
    order = _by_weight(trace, diagnosis)
    if session is not None and session not in diagnosis.sessions:
        known = ", ".join(map(str, order[:LISTED])) or "none"
        raise InputInvalid(f"there is no session {session}; there are {known}")
    lead = session if session is not None else next(iter(order), None)
    rest = [diagnosis.sessions[number] for number in order if number != lead]
    looks = inline.Looks()
    pictures, missing = (
        figures.draw(trace, lead, diagnosis.jobs, looks) if lead is not None and has_pictures else ((), ())
    )
    remedies = Remedies()
    model, model_missing = (None, "") if lead is None else modelled.of_session(trace, lead)
    return Document(
        title=_title(trace),
        subtitle=_subtitle(trace),
        lead=None if lead is None else chapters.of_session(trace, diagnosis.sessions[lead], remedies),
        others=_others(trace, diagnosis, lead, rest),
        chapters=tuple(chapters.of_session(trace, opinion, remedies) for opinion in rest[:IN_FULL] if opinion.jobs_ns),
        pictures=pictures,
        pictures_left_out=missing,
        sections=sections.of_trace(trace, lead, diagnosis.mirrors),
        model=model,
        model_missing=model_missing,
        style_sheet=looks.sheet,
    )


def _by_weight(trace: Trace, diagnosis: Diagnosis) -> list[int]:
    """The sessions by bytes moved, most first; ties by number of commands, then by number."""
    cycles = trace.cycles
    session = np.ma.filled(np.ma.asarray(cycles["session"]).astype(np.int64), -1)
    is_known = session >= 0
    least = max(diagnosis.sessions, default=-1) + 1
    moved = np.bincount(session[is_known], weights=cycles.raw("data_bytes")[is_known], minlength=least)
    commands = np.bincount(session[is_known], minlength=least)
    return sorted(diagnosis.sessions, key=lambda number: (-moved[number], -commands[number], number))


def _title(trace: Trace) -> str:
    names = [cells.short(str(source["name"]).rpartition("/")[2]) for source in trace.inputs]
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else next(iter(names), "capture")


def _subtitle(trace: Trace) -> str:
    times = [each for source in trace.inputs for each in (source["time_first_ns"], source["time_last_ns"]) if each]
    span = f"{(max(times) - min(times)) / 1e9:.1f} s from {cells.date(min(times))}" if times else "no packet"
    sessions, commands = len(trace.sessions), len(trace.cycles)
    return (
        f"{span}; {cells.count(trace.packet_count)} packets, {_counted(sessions, 'iSCSI session')}, "
        f"{_counted(commands, 'SCSI command')}"
    )


def _counted(amount: int, noun: str) -> str:
    return f"{cells.count(amount)} {noun if amount == 1 else noun + 's'}"


def _others(trace: Trace, diagnosis: Diagnosis, lead: int | None, rest: list[Opinion]) -> Grid | None:
    """A row for each other session, and for each connection of the first if it has several."""
    targets = {
        row["session"]: cells.short(row["target_name"]) for row in trace.sessions.rows(("session", "target_name"))
    }
    members = [
        row["connection"]
        for row in trace.connections.rows(("connection", "session", "is_iscsi"))
        if row["is_iscsi"] and row["session"] == lead
    ]
    lines = [
        (f"connection {number}", targets.get(lead, cells.NOTHING), diagnosis.connections[number].verdict)
        for number in members
        if len(members) > 1 and number in diagnosis.connections
    ]
    lines += [(f"session {each.number}", targets.get(each.number, cells.NOTHING), each.verdict) for each in rest]
    if not lines:
        return None
    return limited("Other sessions and connections", ("session or connection", "target", "verdict"), lines, LISTED)
