"""``iscsitrace mirrors``: the writes that sessions carry to several targets, and which leg each waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iscsitrace.analysis.groups.mirrors import NEEDED
from iscsitrace.cli import units
from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.output import envelope, show_heading, show_json, show_line, show_table
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.analysis.groups.mirrors.account import Account
    from iscsitrace.tables.table import Table
    from iscsitrace.tables.trace import Trace

_ROWS = 20


@click.command(epilog="Example:  iscsitrace mirrors --slower 10ms --top 5 --filter capture.pcapng")
@takes_captures
@as_json
@click.option("--slower", "slower_ns", type=units.Duration(), help="Only writes with a skew above TIME, like 10ms.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Only the COUNT of largest skew, the largest first; 20 of all if not set, but for --json.",
)
@click.option("--filter", "has_filter", is_flag=True, help="Add a Wireshark display filter for each write.")
def command(
    capture_input: CaptureInput, is_json: bool, slower_ns: int | None, top: int | None, has_filter: bool
) -> None:
    """Sessions that carry the same writes, as a software RAID1 over iSCSI targets does; what each write waited for.

    A mirrored write is the smallest set of commands that covers the same blocks on every leg. Its skew is the time from
    done on the first leg to done on the last. The cause is the part of the time budget in which both differ most.
    """
    trace = capture_input.read(NEEDED, loading="iscsitrace.analysis.groups.mirrors.account")
    from iscsitrace.analysis.groups.mirrors import account, tables

    accounts = account.of_trace(trace.table)
    found = [each.found for each in accounts]
    every = tables.mirrored_writes(found, trace.table)
    mirrored = _picked(every, slower_ns, top)
    legs = tables.mirror_legs(found, trace.table)
    if is_json:
        _show_json(trace, accounts, mirrored, legs, has_filter)
    else:
        shown = mirrored if top else _picked(mirrored, None, _ROWS)
        _show(trace, accounts, shown, legs, has_filter, len(every))


def _picked(mirrored: Table, slower_ns: int | None, top: int | None) -> Table:
    """Those above a skew, and of them so many with the largest, or all in order of time."""
    import numpy as np

    skews = np.ma.filled(np.ma.asarray(mirrored["skew_ns"]), -1)
    if slower_ns is not None:
        mirrored, skews = mirrored.select(skews > slower_ns), skews[skews > slower_ns]
    return mirrored if top is None else mirrored.select(np.argsort(-skews, kind="stable")[:top])


def _legs_of(legs: Table, number: int) -> list[dict[str, Any]]:
    """Of one mirrored write: they stand together, in the order of the writes."""
    first, last = legs.raw("mirrored_write").searchsorted([number, number + 1])
    return list(legs.select(slice(int(first), int(last))).rows())


def _display_filter(legs: list[dict[str, Any]]) -> str:
    frames = {leg[name] for leg in legs for name in ("command_frame", "status_frame")} - {None}
    return f"frame.number in {{{', '.join(map(str, sorted(frames)))}}}"


def _show_json(trace: Trace, accounts: list[Account], mirrored: Table, legs: Table, has_filter: bool) -> None:
    rows = []
    for row in mirrored.rows():
        own = _legs_of(legs, row["mirrored_write"])
        row["legs"] = [{name: leg[name] for name in leg if name != "mirrored_write"} for leg in own]
        if has_filter:
            row["display_filter"] = _display_filter(own)
        rows.append(row)
    described = [account.as_dict(number) for number, account in enumerate(accounts)]
    show_json(envelope(trace) | {"mirrors": described, "mirrored_writes": rows})


def _show(trace: Trace, accounts: list[Account], mirrored: Table, legs: Table, has_filter: bool, count: int) -> None:
    if not accounts:
        show_line("no mirror: no two sessions of one host carried the same writes at the same time")
        return
    for number, account in enumerate(accounts):
        _show_account(number, account)
    times = trace.connections.raw("time_first_ns")
    start_ns = int(times.min()) if len(times) else 0
    show_heading(f"Mirrored writes, {len(mirrored)} of {count}: times in s after the first TCP packet, others in ms")
    rows = list(mirrored.rows())
    show_table(
        (
            *("mirror", "write", "time", "LBA", "bytes", "skew", "last session", "because", "of it"),
            "done on each leg after",
        ),
        [_line(row, _legs_of(legs, row["mirrored_write"]), start_ns) for row in rows],
    )
    if has_filter:
        show_heading("Display filters")
        for row in rows:
            own = _legs_of(legs, row["mirrored_write"])
            click.echo(f"mirrored write {row['mirrored_write']}: {_display_filter(own)}")


def _show_account(number: int, account: Account) -> None:
    show_heading(f"Mirror {number}: {account.name}")
    if account.doubt:
        show_line(account.doubt)
    skews = account.skews
    said = ", ".join(f"{name} {cells.milliseconds(skews[name])}" for name in ("p50", "p95", "max"))
    written = cells.megabytes(float(account.found.lengths.sum()))
    show_line(f"{len(account.found)} mirrored writes, {written} MB; skew ms: {said}")
    show_table(
        ("leg", "sessions", "target", "LUN", "last to finish", "alone at work ms", "mostly because"),
        [
            (
                leg.place,
                " ".join(map(str, leg.sessions)),
                leg.target,
                leg.lun,
                leg.last_count,
                cells.milliseconds(leg.alone_ns),
                leg.cause,
            )
            for leg in account.legs
        ],
    )


def _line(row: dict[str, Any], legs: list[dict[str, Any]], start_ns: int) -> tuple[object, ...]:
    done = [cells.milliseconds(None if leg["end_ns"] is None else leg["end_ns"] - row["begin_ns"]) for leg in legs]
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
