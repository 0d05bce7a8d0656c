"""Mirrored sessions and their writes as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from iscsitrace.measure.selection import frames_filter
from iscsitrace.relate.mirrors.account import WORDS
from iscsitrace.relate.mirrors.writes import largest_skews, mirror_legs, mirrored_writes, sides_of
from iscsitrace.show.document import Block, Grid, Heading, Section, table
from iscsitrace.wording import amounts, cells
from iscsitrace.wording.sentences import capital, sentence

if TYPE_CHECKING:
    from iscsitrace.relate.mirrors.account import Account
    from iscsitrace.tables.table import Table
    from iscsitrace.tables.trace import TraceTables


def as_dict(
    trace: TraceTables, accounts: Sequence[Account], mirrored: Table, sides: Table, *, has_filter: bool
) -> dict[str, Any]:
    """What ``mirrors --json`` prints."""
    rows = []
    for row in mirrored.rows():
        own = sides_of(sides, row["mirrored_write"])
        row["legs"] = [{name: side[name] for name in side if name != "mirrored_write"} for side in own]
        if has_filter:
            row["display_filter"] = _display_filter(own)
        rows.append(row)
    described = [account.as_dict(number) for number, account in enumerate(accounts)]
    return trace.provenance | {"mirrors": described, "mirrored_writes": rows}


def sections(
    trace: TraceTables, accounts: Sequence[Account], mirrored: Table, sides: Table, count: int, *, has_filter: bool
) -> Iterator[Section]:
    """Every mirror, and those of its ``count`` writes that are in ``mirrored``."""
    if not accounts:
        yield Section("", ("no mirror: no two sessions of one host carried the same writes at the same time",))
        return
    blocks = [block for number, account in enumerate(accounts) for block in of_account(number, account)]
    title = f"Mirrored writes, {len(mirrored):,} of {count:,}: time in s after the first packet, other times in ms"
    yield Section("", (*blocks, writes(trace, mirrored, sides, title)))
    if has_filter:
        rows = (
            (row["mirrored_write"], _display_filter(sides_of(sides, row["mirrored_write"]))) for row in mirrored.rows()
        )
        yield Section("Display filters", tuple(f"mirrored write {number}: {text}" for number, text in rows))


def of_account(number: int, account: Account) -> Iterator[Block]:
    """A mirror: which side its writes wait for, and why, and what each side did."""
    yield Heading(f"Mirror {number}: {account.name}")
    far = account.farthest
    because = f", mostly because {WORDS[far.cause]}" if far.cause else ""
    yield (
        f"Its writes wait for {far.label}, which finishes last in {far.last_count:,} of "
        f"{amounts.count(account.known_count, 'write')}{because}."
    )
    half, most = (amounts.time(account.skews[name] or 0) for name in ("p50", "max"))
    yield (
        f"The last side finishes {half} after the first (median), at most {most}. "
        f"{capital(far.label)} works alone for {amounts.time(far.alone_ns)}."
    )
    if account.doubt:
        yield sentence(account.doubt)
    skews = ", ".join(f"{name} {cells.milliseconds(account.skews[name])}" for name in ("p50", "p95", "max"))
    of = amounts.part_of(account.skews["n"] or 0, len(account.found), "writes", "have no status")
    line = f"{len(account.found):,} mirrored writes, {cells.megabytes(account.bytes)} MB; skew ms: {skews}"
    yield line + (f" ({of})" if of else "")
    columns = ("side", "sessions", "target", "LUN", "finished last", "alone in flight ms", "main cause")
    rows = [
        (
            side.place,
            " ".join(map(str, side.sessions)),
            cells.short(side.target),
            side.lun,
            side.last_count,
            cells.milliseconds(side.alone_ns),
            side.cause and side.cause.replace("_", " "),
        )
        for side in account.sides
    ]
    yield table(columns, rows)


def writes(trace: TraceTables, mirrored: Table, sides: Table, caption: str) -> Grid:
    """A row for each of these mirrored writes."""
    start_ns = trace.start_ns
    columns = (
        *("mirror", "write", "time", "LBA", "size", "skew", "last session", "cause", "due to cause"),
        "each side done after",
    )
    rows = (_line(row, sides_of(sides, row["mirrored_write"]), start_ns) for row in mirrored.rows())
    return table(columns, rows, caption)


def of_trace(trace: TraceTables, accounts: Sequence[Account], top: int) -> Iterator[Block]:
    """Every mirror, and the ``top`` writes of all with the largest skew."""
    for number, account in enumerate(accounts):
        yield from of_account(number, account)
    found = [each.found for each in accounts]
    every, sides = mirrored_writes(found, trace.table), mirror_legs(found, trace.table)
    worst = largest_skews(every, slower_ns=None, top=top)
    yield writes(trace, worst, sides, "Writes with the largest skew: time in s, other times in ms")
    rows = ((row["mirrored_write"], _display_filter(sides_of(sides, row["mirrored_write"]))) for row in worst.rows())
    yield table(("write", "display filter"), rows, "Display filters of these writes")


def _line(row: dict[str, Any], sides: list[dict[str, Any]], start_ns: int) -> tuple[object, ...]:
    done = [cells.milliseconds(None if side["end_ns"] is None else side["end_ns"] - row["begin_ns"]) for side in sides]
    return (
        row["mirror"],
        row["mirrored_write"],
        cells.seconds(row["begin_ns"] - start_ns),
        row["lba"],
        cells.size(row["bytes"]),
        cells.milliseconds(row["skew_ns"]),
        row["last_session"],
        row["cause"] and row["cause"].replace("_", " "),
        cells.milliseconds(row["cause_ns"]),
        " ".join(done),
    )


def _display_filter(sides: list[dict[str, Any]]) -> str:
    return frames_filter({side[name] for side in sides for name in ("command_frame", "status_frame")} - {None})
