"""The report on captures: a trace and its diagnosis as a document."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from iscsitrace.analysis.findings import NEEDED
from iscsitrace.analysis.findings.examination import Diagnosis, examine
from iscsitrace.analysis.findings.headline import NONE, TOO_SHORT
from iscsitrace.analysis.taps.reading import TappedTrace
from iscsitrace.errors import InputInvalid
from iscsitrace.outputs.document import Grid, limited
from iscsitrace.outputs.remedies import Remedies
from iscsitrace.plots import inline
from iscsitrace.report import chapters, figures, modelled, places, sections, subject
from iscsitrace.report.document import Document
from iscsitrace.report.subject import Subject
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
    """The document on a session, by default the story of the headline; InputInvalid for an unknown session."""
    diagnosis = examine(trace.table, tap_of=trace.tap_of)
    order = _by_weight(trace, diagnosis)
    if session is not None and session not in diagnosis.sessions:
        known = ", ".join(map(str, order[:LISTED])) or "none"
        raise InputInvalid(f"there is no session {session}; there are {known}")
    lead, rest = _subjects(diagnosis, order, session)
    main = next((number for number in order if lead and number in lead.sessions), None)
    story = tuple(number for number in lead.sessions if number != main) if lead else ()
    looks = inline.Looks()
    pictures, missing = (
        figures.draw(trace, main, diagnosis.jobs, looks, story) if main is not None and has_pictures else ((), ())
    )
    has_timeline = has_pictures and lead is not None and lead.failure is not None
    timeline = figures.timeline(trace, main, looks) if has_timeline else ()
    remedies = Remedies()
    model, model_missing = (None, "") if main is None else modelled.of_session(trace, main)
    if model is not None and story:
        sentence = model.sentence
        model = replace(model, sentence=f"Session {main}: {sentence[:1].lower()}{sentence[1:]}")
    return Document(
        title=_title(trace),
        subtitle=_subtitle(trace),
        lead=None if lead is None else chapters.of_subject(trace, lead, remedies),
        places=places.of_trace(trace, main, looks, has_pictures=has_pictures),
        others=_others(trace, diagnosis, lead, rest),
        chapters=tuple(chapters.of_subject(trace, each, remedies) for each in rest[:IN_FULL] if _is_worth(each)),
        pictures=pictures,
        pictures_left_out=missing,
        sections=sections.of_trace(trace, lead, diagnosis.mirrors),
        model=model,
        model_missing=model_missing,
        timeline=timeline,
        style_sheet=looks.sheet,
    )


def _subjects(diagnosis: Diagnosis, order: list[int], session: int | None) -> tuple[Subject | None, list[Subject]]:
    """What the report is about first, and the others: what broke, then by bytes moved.

    By default sessions that took each other's place are one subject, and that of the headline is the first; where the
    headline names no problem, the one that moved most bytes. A requested session is the first, on its own.
    """
    place = {number: index for index, number in enumerate(order)}

    def weight(each: Subject) -> tuple[bool, float, int]:
        is_failure = each.failure is not None and each.failure.leads
        return not is_failure, -(each.headline.cost_ns or 0.0) if is_failure else 0.0, _first(each, place)

    told = [(each, subject.of_story(each, diagnosis.sessions)) for each in diagnosis.stories]
    first = diagnosis.headline
    has_problem = first is not None and first.name not in (NONE, TOO_SHORT)
    lead = next((found for each, found in told if has_problem and each.headline is first), None)
    rest = sorted((found for _, found in told), key=weight)
    if session is not None:
        own = next((each for each in rest if session in each.sessions), None)
        others = (
            [subject.of_session(diagnosis.sessions[each]) for each in own.sessions if each != session] if own else []
        )
        return subject.of_session(diagnosis.sessions[session]), [*others, *(each for each in rest if each is not own)]
    lead = lead or next(iter(rest), None)
    return lead, [each for each in rest if each is not lead]


def _is_failure(found: Subject) -> bool:
    return found.failure is not None


def _first(found: Subject, place: dict[int, int]) -> int:
    """The best place of its sessions; the last where it has none."""
    return min((place[number] for number in found.sessions if number in place), default=len(place))


def _is_worth(found: Subject) -> bool:
    """Whether it is shown in full: something broke, or there is busy time to show."""
    return _is_failure(found) or bool(found.time and found.time.jobs_ns)


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
    taps = [tap.trace for tap in trace.tap_list] if isinstance(trace, TappedTrace) else [trace]
    names = [cells.short(str(source["name"]).rpartition("/")[2]) for tap in taps for source in tap.inputs]
    if len(taps) == len(names) == 2:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else next(iter(names), "capture")


def _subtitle(trace: Trace) -> str:
    times = [each for source in trace.inputs for each in (source["time_first_ns"], source["time_last_ns"]) if each]
    span = f"{(max(times) - min(times)) / 1e9:.1f} s from {cells.clock(min(times))}" if times else "no packet"
    sessions, commands = len(trace.sessions), len(trace.cycles)
    return (
        f"{span}; {cells.count(trace.packet_count)} packets, {_counted(sessions, 'iSCSI session')}, "
        f"{_counted(commands, 'SCSI command')}"
    )


def _counted(amount: int, noun: str) -> str:
    return f"{cells.count(amount)} {noun if amount == 1 else noun + 's'}"


def _others(trace: Trace, diagnosis: Diagnosis, lead: Subject | None, rest: list[Subject]) -> Grid | None:
    """A row for each other subject, and for each connection of the first if it is of one session with several."""
    targets = {
        row["session"]: cells.short(row["target_name"]) for row in trace.sessions.rows(("session", "target_name"))
    }
    only = lead.sessions[0] if lead and len(lead.sessions) == 1 else None
    members = [
        row["connection"]
        for row in trace.connections.rows(("connection", "session", "is_iscsi"))
        if row["is_iscsi"] and only is not None and row["session"] == only
    ]
    lines = [
        (f"connection {number}", targets.get(only, cells.NOTHING), diagnosis.connections[number].verdict)
        for number in members
        if len(members) > 1 and number in diagnosis.connections
    ]
    lines += [
        (
            each.label,
            next((targets.get(number, cells.NOTHING) for number in each.sessions), cells.NOTHING),
            each.headline.text,
        )
        for each in rest
    ]
    if not lines:
        return None
    return limited("Other sessions and connections", ("session or connection", "target", "verdict"), lines, LISTED)
