"""The report on captures: a trace and its diagnosis as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from iscsitrace.diagnosis import subject as subjects
from iscsitrace.diagnosis.examination import Diagnosis, examine_trace
from iscsitrace.diagnosis.headline import Verdict
from iscsitrace.diagnosis.subject import Subject
from iscsitrace.errors import InputInvalid
from iscsitrace.findings import NEEDED
from iscsitrace.plots import inline
from iscsitrace.report import chapters, figures, heat, sections
from iscsitrace.show import places, shown
from iscsitrace.show.diagnose import Remedies
from iscsitrace.show.document import Block, Document, Grid, Opening, Section, table
from iscsitrace.show.shown import HEADLINES
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps.reading import TappedTables
from iscsitrace.wording import amounts, cells
from iscsitrace.wording.parts import BY_NAME

__all__ = ["describe", "needed"]

IN_FULL: Final = 3
"""Sessions, besides the first, that are shown in full."""
LISTED: Final = 24
"""Most other sessions that are listed with their sentences; where there are more, all are rows of names and times."""
GROUPS: Final = 200
"""Most groups of sessions by one attribute."""
ROWS: Final = 2_000
"""Most rows of names and times: a page with more is slow to open and to filter."""


def needed(is_large: bool, has_pictures: bool = True) -> tuple[str, ...]:
    """The tables that a trace must be read with."""
    return tuple(dict.fromkeys((*NEEDED, *sections.NEEDED, *(figures.needed(is_large) if has_pictures else ()))))


def describe(
    trace: TraceTables,
    *,
    session: int | None = None,
    has_pictures: bool = True,
    by: Sequence[str] = (),
    yardsticks: Mapping[str, float] | None = None,
) -> Document:
    """The document on a session, by default the story of the headline; InputInvalid for an unknown session.

    It has the verdicts of all sessions ``by`` each of these, and throughput as a share of the ``yardsticks`` in
    bytes/s: ``line``, ``socket``.
    """
    diagnosis = examine_trace(trace)
    order = _by_weight(trace, diagnosis)
    if session is not None and session not in diagnosis.sessions:
        known = ", ".join(map(str, order[:LISTED])) or "none"
        raise InputInvalid(f"there is no session {session}; there are {known}")
    first, rest = entries(diagnosis, order, session)
    lead = first.tell() if first else None
    others = [each.tell() for each in rest[: LISTED if len(rest) <= LISTED else IN_FULL]]
    of_lead = frozenset(lead.sessions) if lead else ()
    main = next((number for number in order if number in of_lead), None)
    remedies, looks = Remedies(), inline.Looks()
    opening = Opening("Diagnosis", "No iSCSI session was found.")
    found: list[Section] = []
    if isinstance(trace, TappedTables):
        plots = figures.of_places(trace, main, looks) if has_pictures and main is not None else None
        found.append(places.section(places.as_dict(trace), plots))
    found += (*_groups(trace, diagnosis, by), *heat.of_trace(trace, diagnosis))
    if lead is not None:
        told = chapters.told(lead, remedies)
        has_timeline = has_pictures and lead.failure is not None
        opening = chapters.opening(
            trace, lead, told, figures.timeline(trace, main, looks) if has_timeline else (), yardsticks or {}
        )
        found.append(chapters.findings(lead, told, filter(_is_worth, others[:IN_FULL]), remedies))
    found += _others(trace, diagnosis, lead, rest, others)
    title = _title(trace)
    if lead is not None and main is not None:
        story = tuple(number for number in lead.sessions if number != main)
        if has_pictures:
            found += figures.section(*figures.draw(trace, main, diagnosis.jobs, looks, story))
        found.append(sections.of_session(trace, main, title, has_others=bool(story)))
    found += sections.of_trace(trace, lead, diagnosis.mirrors)
    return Document(title, _subtitle(trace), opening, tuple(found), looks.sheet)


def _groups(trace: TraceTables, diagnosis: Diagnosis, by: Sequence[str]) -> Iterator[Section]:
    """The verdicts of all sessions by each of these."""
    if by:
        grids = (shown.groups_grid(shown.groups_by(trace, diagnosis, name), GROUPS) for name in by)
        blocks: tuple[Block, ...] = (shown.GROUPS_READING, *(grid._replace(is_long=True) for grid in grids))
        yield Section("Groups of sessions", blocks, "groups")


def _is_worth(found: Subject) -> bool:
    """Whether it is shown in full: something broke, or there is busy time to show."""
    return found.failure is not None or bool(found.time and found.time.jobs_ns)


def _by_weight(trace: TraceTables, diagnosis: Diagnosis) -> list[int]:
    """The sessions by bytes moved, most first; ties by number of commands, then by number."""
    cycles = trace.cycles
    session = np.ma.filled(np.ma.asarray(cycles["session"]).astype(np.int64), -1)
    is_known = session >= 0
    least = max(diagnosis.sessions, default=-1) + 1
    moved = np.bincount(session[is_known], weights=cycles.raw("data_bytes")[is_known], minlength=least)
    commands = np.bincount(session[is_known], minlength=least)
    return sorted(diagnosis.sessions, key=lambda number: (-moved[number], -commands[number], number))


def _title(trace: TraceTables) -> str:
    taps = [tap.trace for tap in trace.tap_list] if isinstance(trace, TappedTables) else [trace]
    names = [cells.short(str(source["name"]).rpartition("/")[2]) for tap in taps for source in tap.inputs]
    if len(taps) == len(names) == 2:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else next(iter(names), "capture")


def _subtitle(trace: TraceTables) -> str:
    times = [each for source in trace.inputs for each in (source["time_first_ns"], source["time_last_ns"]) if each]
    span = f"{(max(times) - min(times)) / 1e9:.1f} s from {cells.clock(min(times))}" if times else "no packet"
    sessions, commands = len(trace.sessions), len(trace.cycles)
    return (
        f"{span}; {cells.count(trace.packet_count)} packets, {amounts.count(sessions, 'iSCSI session')}, "
        f"{amounts.count(commands, 'SCSI command')}"
    )


def _others(
    trace: TraceTables, diagnosis: Diagnosis, lead: Subject | None, rest: list[Entry], told: list[Subject]
) -> Iterator[Section]:
    """A row for each other subject, and for each connection of the first if it is of one session with several; ``told``
    are the first of ``rest``. Where there are too many for their sentences, they are rows of names and times.
    """
    targets = {
        row["session"]: cells.short(row["target_name"]) for row in trace.sessions.rows(("session", "target_name"))
    }
    only = lead.sessions[0] if lead and len(lead.sessions) == 1 else None
    members = [
        row["connection"]
        for row in trace.connections.rows(("connection", "session", "is_iscsi"))
        if row["is_iscsi"] and only is not None and row["session"] == only
    ]
    own = [number for number in members if len(members) > 1 and number in diagnosis.connections]

    def target(sessions: tuple[int, ...]) -> str:
        return next((targets.get(number, cells.NOTHING) for number in sessions), cells.NOTHING)

    if len(rest) > LISTED:
        alone = diagnosis.separate.verdicts if own else {}
        every = [(f"connection {number}", targets.get(only, cells.NOTHING), alone[number]) for number in own]
        worst = sorted(rest, key=lambda each: each.verdict.weight, reverse=True)
        every += [(each.label, target(each.sessions), each.verdict) for each in worst]
        rows = [
            (
                label,
                of,
                HEADLINES.get(verdict.name, verdict.name),
                BY_NAME[verdict.limiter].limited if verdict.limiter else cells.NOTHING,
                cells.seconds(verdict.cost_ns),
                cells.seconds(verdict.jobs_ns),
            )
            for label, of, verdict in every
        ]
        columns = ("session or connection", "target", "headline", "limiter", "lost s", "I/O s")
        yield _of_others(table(columns, rows, "The worst first", limit=ROWS))
        return
    lines = [
        (f"connection {number}", targets.get(only, cells.NOTHING), diagnosis.connections[number].headline.text)
        for number in own
    ]
    lines += [(each.label, target(each.sessions), each.headline.text) for each in told]
    if lines:
        yield _of_others(table(("session or connection", "target", "verdict"), lines, limit=LISTED))


def _of_others(grid: Grid) -> Section:
    return Section("Other sessions and connections", (grid._replace(is_long=True),), "others")


@dataclass(frozen=True)
class Entry:
    """A session or story in its place."""

    label: str
    sessions: tuple[int, ...]
    verdict: Verdict
    tell: Callable[[], Subject]
    """Makes its headline and findings as text."""


def entries(diagnosis: Diagnosis, order: list[int], session: int | None) -> tuple[Entry | None, list[Entry]]:
    """What the report is about first, and the others: what broke, then in the ``order`` of sessions.

    By default sessions that took each other's place are one subject, and that of the headline is the first; where the
    headline names no problem, the first in order. A requested session is the first, on its own.
    """
    place = {number: index for index, number in enumerate(order)}

    def weight(each: Entry) -> tuple[bool, float, int]:
        is_failure = each.verdict.is_failure
        first = min((place[number] for number in each.sessions if number in place), default=len(place))
        return not is_failure, -(each.verdict.cost_ns or 0.0) if is_failure else 0.0, first

    every = [_of_story(diagnosis, index) for index in range(len(diagnosis.stories))]
    rest = sorted(every, key=weight)
    if session is not None:
        own = next((each for each in rest if session in each.sessions), None)
        others = [_of_session(diagnosis, each) for each in own.sessions if each != session] if own else []
        return _of_session(diagnosis, session), [*others, *(each for each in rest if each is not own)]
    worst = diagnosis.stories.worst
    has_problem = worst is not None and every[worst].verdict.kind in ("limited", "problem")
    lead = every[worst] if worst is not None and has_problem else next(iter(rest), None)
    return lead, [each for each in rest if each is not lead]


def _of_story(diagnosis: Diagnosis, place: int) -> Entry:
    stories = diagnosis.stories
    return Entry(
        stories.labels[place],
        stories.numbers[place],
        stories.verdicts[place],
        lambda: subjects.of_story(stories[place], diagnosis.sessions),
    )


def _of_session(diagnosis: Diagnosis, number: int) -> Entry:
    return Entry(
        f"session {number}",
        (number,),
        diagnosis.sessions.verdicts[number],
        lambda: subjects.of_session(diagnosis.sessions[number]),
    )
