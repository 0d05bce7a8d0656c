"""The section on mirrors: which side the writes wait for, why, and the writes with the largest skew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from iscsitrace.relate.mirrors import tables
from iscsitrace.relate.mirrors.account import WORDS, Account
from iscsitrace.show.document import Grid, Section
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import cells
from iscsitrace.wording.sentences import capital, sentence

WRITES: Final = 8
"""Most mirrored writes that are shown, largest skew first."""


def of_trace(trace: Trace, accounts: Sequence[Account]) -> Iterator[Section]:
    """One section for all mirrors; nothing without mirrors."""
    if not accounts:
        return
    lines: list[str] = []
    grids: list[Grid] = []
    for number, account in enumerate(accounts):
        lines += _lines(account)
        grids += [_sides(number, account), _writes(number, account, trace)]
    yield Section("Mirrors", tuple(lines), tuple(grids), "mirrors")


def _lines(account: Account) -> Iterator[str]:
    """The sentences on one mirror, the verdict first."""
    far = account.farthest
    because = f", mostly because {WORDS[far.cause]}" if far.cause else ""
    yield (
        f"{capital(account.name)}: its writes wait for {far.label}, which finishes last in {far.last_count} of "
        f"{wording.count(account.known_count, 'write')}{because}."
    )
    half, most = (wording.time(account.skews[name] or 0) for name in ("p50", "max"))
    yield (
        f"The last side finishes {half} after the first (median), at most {most}. "
        f"{capital(far.label)} works alone for {wording.time(far.alone_ns)}."
    )
    if account.doubt:
        yield sentence(account.doubt)


def _sides(number: int, account: Account) -> Grid:
    rows = tuple(
        (
            str(side.place),
            ", ".join(map(str, side.sessions)),
            cells.short(side.target),
            str(side.lun),
            cells.count(side.last_count),
            cells.milliseconds(side.alone_ns),
            cells.short(side.cause and side.cause.replace("_", " ")),
        )
        for side in account.sides
    )
    columns = ("side", "sessions", "target", "LUN", "writes finished last", "busy alone ms", "main cause")
    return Grid(f"Sides of mirror {number}", columns, rows)


def _writes(number: int, account: Account, trace: Trace) -> Grid:
    times = trace.connections.raw("time_first_ns")
    start_ns = int(times.min()) if len(times) else 0
    worst = account.worst[:WRITES]
    written = tables.mirrored_writes([account.found], trace.table).select(worst)
    sides = tables.mirror_legs([account.found], trace.table)
    rows = []
    for row in written.rows():
        own = list(sides.select(sides.raw("mirrored_write") == row["mirrored_write"]).rows())
        done = [cells.milliseconds(side["end_ns"] - row["begin_ns"]) for side in own]
        frames = sorted({side[name] for side in own for name in ("command_frame", "status_frame")} - {None})
        rows.append(
            (
                cells.seconds(row["begin_ns"] - start_ns),
                cells.short(row["lba"]),
                cells.size(row["bytes"]),
                cells.milliseconds(row["skew_ns"]),
                cells.short(row["last_session"]),
                cells.short(row["cause"] and row["cause"].replace("_", " ")),
                " / ".join(done),
                f"frame.number in {{{', '.join(map(str, frames))}}}",
            )
        )
    columns = ("time s", "LBA", "bytes", "skew ms", "last session", "cause", "done on each side ms", "display filter")
    return Grid(f"Writes of mirror {number} with the largest skew", columns, tuple(rows))
