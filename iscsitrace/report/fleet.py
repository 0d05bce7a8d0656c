"""The report on a dataset: what broke, what is slow, then where the time goes by part, volume, host and hour."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from iscsitrace.fleet.sql import Database
from iscsitrace.fleet.top import Broken, broken_sessions, failure_command, failure_filter, top
from iscsitrace.show import fleet as costs_of
from iscsitrace.show.document import Document, Fact, Grid, Opening, Section, table
from iscsitrace.wording import amounts, cells
from iscsitrace.wording.parts import BY_NAME
from iscsitrace.wording.sentences import capital

LISTED: Final = 100
"""Most sessions that are named as broken."""
ROWS: Final = 24
_PLACES: Final = {"volume": "By volume", "initiator": "By initiator", "target": "By target", "hour": "By hour (UTC)"}
_NUMBERS: Final = """
SELECT count(*), count(DISTINCT tap), sum(frame_count)::BIGINT, sum(size_bytes)::BIGINT,
    min(time_first_ns), max(time_last_ns), count(*) FILTER (status <> 'read') FROM captures
"""
_SLOW: Final = """
SELECT name, count(DISTINCT (tap, session)), coalesce(sum(cost_ns), 0)::BIGINT AS cost, arg_max(tap, cost_ns),
    arg_max(session, cost_ns), arg_max(text, cost_ns)
FROM findings WHERE rank = 'slowness' AND severity <> 'info' AND cost_ns IS NOT NULL
GROUP BY name ORDER BY cost DESC, name
"""
_PARTS: Final = """
SELECT part, count(DISTINCT (tap, session)), sum(duration_ns)::BIGINT AS duration
FROM time_breakdown WHERE is_busy GROUP BY part ORDER BY duration DESC, part
"""


def describe(dataset: Path) -> Document:
    """The document. InputInvalid for what is no dataset, or one without the tables of commands."""
    with Database(dataset) as database:
        found = broken_sessions(database)
        ((captures, taps, packets, size, first_ns, last_ns, _),) = database.query(_NUMBERS).rows
        ((sessions,),) = database.query("SELECT count(*) FROM sessions").rows
        ((commands, payload),) = database.query("SELECT count(*), sum(data_bytes)::BIGINT FROM cycles").rows
        sections = (*_broken(found), *_slow(database), _time(database), _captures(database), _making(database))
    failed = sum(each.has_failed for each in found)
    span = "no packet" if first_ns is None else f"{cells.clock(first_ns)} to {cells.clock(last_ns)}"
    return Document(
        title=dataset.absolute().name,
        subtitle=f"{span}; {amounts.count(taps, 'tap')}, {amounts.count(captures, 'capture')}",
        sections=sections,
        opening=Opening(
            "Result",
            _verdict(found, failed, sessions),
            "The same traffic captured at two taps is in the dataset twice.",
            (
                Fact("sessions", cells.count(sessions)),
                Fact("commands", cells.count(commands)),
                Fact("payload", f"{cells.megabytes(payload or 0)} MB"),
                Fact("packets", cells.count(packets or 0)),
                Fact("captures", f"{cells.megabytes(size or 0)} MB"),
            ),
        ),
    )


def _verdict(found: Sequence[Broken], failed: int, sessions: int) -> str:
    if not found:
        return f"Nothing broke: {amounts.count(sessions, 'session')} without a failure or an error status."
    worst = found[0]
    where = f"session {worst.session} of tap {worst.tap}"
    rest = len(found) - failed
    others = f", {rest:,} more had errors or no logout" if rest else ""
    return (
        f"{failed:,} of {amounts.count(sessions, 'session')} failed{others}. "
        f"The worst is {where}: {'; '.join(worst.what)}."
    )


def _broken(found: Sequence[Broken]) -> Iterator[Section]:
    if not found:
        return
    rows = [
        (
            number,
            each.tap,
            cells.short(each.session),
            capital("; ".join(each.what)),
            None if each.time_ns is None else cells.clock(each.time_ns),
            cells.seconds(each.lost_ns),
            cells.short(each.initiator),
            cells.short(each.target),
        )
        for number, each in enumerate(found, 1)
    ]
    columns = ("no.", "tap", "session", "what happened", "from", "lost s", "initiator", "target")
    places = [
        (number, each.tap, cells.short(each.capture or None), failure_filter(each), _shell(each))
        for number, each in enumerate(found, 1)
    ]
    look = ("no.", "tap", "capture", "display filter", "command")
    blocks = (
        "Sessions that failed, by the time they lost; sessions that took each other's place are one row. Then sessions "
        "with error statuses, or without a logout.",
        table(columns, rows, "Sessions with a failure, the worst first", limit=LISTED),
        table(look, places, "Where to look: frames are those of the capture", limit=LISTED),
    )
    yield Section("What broke", blocks, "broken")


def _slow(database: Database) -> Iterator[Section]:
    """What costs time without having broken: each kind once, with the session that it costs most."""
    found = database.query(_SLOW).rows if "findings" in database.tables else []
    if found:
        rows = [
            (name, cells.count(sessions), cells.seconds(cost_ns), f"session {session} of tap {tap}", cells.short(text))
            for name, sessions, cost_ns, tap, session, text in found
        ]
        columns = ("finding", "sessions", "lost s", "most in", "what was found there")
        line = "Findings that cost time, by the time that they cost all sessions. `iscsitrace explain` describes each."
        yield Section("What is slow", (line, table(columns, rows, "Findings by cost", limit=ROWS)), "slow")


def _parts(database: Database) -> Iterator[Grid]:
    """The busy time of all sessions by part."""
    found = database.query(_PARTS).rows if "time_breakdown" in database.tables else []
    if found:
        total_ns = sum(duration_ns for _, _, duration_ns in found)
        rows = (
            (BY_NAME[part].label, sessions, cells.seconds(duration_ns), cells.percent(duration_ns / total_ns))
            for part, sessions, duration_ns in found
        )
        yield table(("part", "sessions", "s", "%"), rows, "Time breakdown of the I/O time of all sessions")


def _shell(each: Broken) -> str:
    return " ".join(map(shlex.quote, failure_command(each))) or cells.NOTHING


def _time(database: Database) -> Section:
    grids = [*_parts(database)]
    for by, caption in _PLACES.items():
        costs, count = top(database, by, "latency", limit=ROWS)
        if by == "hour":
            costs.sort(key=lambda each: each.label)
        if costs:
            grids.append(costs_of.grid(by, costs, count, caption))
    return Section(
        "Where the time goes",
        (
            "Commands that read, write or erase data, by the sum of their latencies. Percentiles are in ms, by nearest "
            "rank, of commands with a status.",
            *grids,
        ),
        "time",
    )


def _captures(database: Database) -> Section:
    columns = ("tap", "captures", "MB", "packets", "first packet", "last packet", "not whole")
    taps = database.query(
        "SELECT tap, count(*), sum(size_bytes)::BIGINT, sum(frame_count)::BIGINT, min(time_first_ns), "
        "max(time_last_ns), count(*) FILTER (status <> 'read') FROM captures GROUP BY tap ORDER BY tap"
    ).rows
    grids = [
        table(
            columns,
            (
                (tap, count, cells.megabytes(size), packets, cells.date(first), cells.date(last), bad)
                for tap, count, size, packets, first, last, bad in taps
            ),
            "Captures by tap",
        )
    ]
    problems = database.query(
        "SELECT tap, capture, status, problem FROM captures WHERE status <> 'read' ORDER BY tap, capture"
    ).rows
    if problems:
        rows = [map(cells.short, row) for row in problems]
        look = ("tap", "capture", "status", "problem")
        grids.append(table(look, rows, "Captures that were not read whole", limit=ROWS))
    return Section("Captures", tuple(grids), "captures")


def _making(database: Database) -> Section:
    made = database.manifests[0]
    lines = (
        f"iscsitrace {made.version}, schema {made.schema}. Tables: {', '.join(made.tables)}.",
        "`iscsitrace docs fleet` describes the dataset, `iscsitrace docs method` each number.",
    )
    return Section("How this was made", lines, "making")
