"""Mirrored sessions and their writes as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from iscsitrace.measure.selection import first_packet_ns, frames_filter
from iscsitrace.relate.mirrors.tables import sides_of
from iscsitrace.show.document import Section, table
from iscsitrace.wording import amounts, cells

if TYPE_CHECKING:
    from iscsitrace.relate.mirrors.account import Account
    from iscsitrace.tables.table import Table
    from iscsitrace.tables.trace import Trace


def as_dict(
    trace: Trace, accounts: Sequence[Account], mirrored: Table, sides: Table, *, has_filter: bool
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
    trace: Trace, accounts: Sequence[Account], mirrored: Table, sides: Table, count: int, *, has_filter: bool
) -> Iterator[Section]:
    """Every mirror, and those of its ``count`` writes that are in ``mirrored``."""
    if not accounts:
        yield Section("", ("no mirror: no two sessions of one host carried the same writes at the same time",))
        return
    yield from (_mirror(number, account) for number, account in enumerate(accounts))
    start_ns = first_packet_ns(trace.connections) or 0
    columns = (
        *("mirror", "write", "time", "LBA", "size", "skew", "last session", "cause", "due to cause"),
        "each side done after",
    )
    rows = [(row, sides_of(sides, row["mirrored_write"])) for row in mirrored.rows()]
    yield Section(
        f"Mirrored writes, {len(mirrored)} of {count}: time in s after the first TCP packet, other times in ms",
        grids=(table(columns, (_line(row, own, start_ns) for row, own in rows)),),
    )
    if has_filter:
        lines = (f"mirrored write {row['mirrored_write']}: {_display_filter(own)}" for row, own in rows)
        yield Section("Display filters", tuple(lines))


def _mirror(number: int, account: Account) -> Section:
    columns = ("side", "sessions", "target", "LUN", "finished last", "alone in flight ms", "main cause")
    rows = [
        (
            side.place,
            " ".join(map(str, side.sessions)),
            side.target,
            side.lun,
            side.last_count,
            cells.milliseconds(side.alone_ns),
            side.cause,
        )
        for side in account.sides
    ]
    skews = ", ".join(f"{name} {cells.milliseconds(account.skews[name])}" for name in ("p50", "p95", "max"))
    of = amounts.part_of(account.skews["n"] or 0, len(account.found), "writes", "have no status")
    line = f"{len(account.found)} mirrored writes, {cells.megabytes(account.bytes)} MB; skew ms: {skews}"
    line += f" ({of})" if of else ""
    lines = (account.doubt, line) if account.doubt else (line,)
    return Section(f"Mirror {number}: {account.name}", lines, (table(columns, rows),))


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
        row["cause"],
        cells.milliseconds(row["cause_ns"]),
        " ".join(done),
    )


def _display_filter(sides: list[dict[str, Any]]) -> str:
    return frames_filter({side[name] for side in sides for name in ("command_frame", "status_frame")} - {None})
