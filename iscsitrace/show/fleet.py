"""A dataset: what ``fleet run`` read, the costs of ``fleet top`` as a table, and a query's answer as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TextIO

from iscsitrace.measure.ranks import PERCENTILES
from iscsitrace.show.document import Grid, table
from iscsitrace.show.loads import percentiles
from iscsitrace.wording import amounts, cells

if TYPE_CHECKING:
    from iscsitrace.fleet.run import Result
    from iscsitrace.fleet.sql import QueryResult
    from iscsitrace.fleet.top import Cost, LostTime

_COLUMNS: Final = (
    *("taps", "commands", "MB", "in flight s", "latency s", *PERCENTILES),
    "no status",
    "errors",
)


def grid(by: str, costs: Sequence[Cost], count: int, caption: str = "") -> Grid:
    """The table of costs, of ``count`` in all. Latencies are in ms; > is a lower bound."""
    rows = (
        (
            cells.short(each.label),
            each.tap_count,
            each.command_count,
            cells.megabytes(each.bytes),
            cells.seconds(each.busy_ns),
            cells.seconds(each.latency_ns),
            *percentiles(each.percentiles),
            each.lost_count,
            each.error_count,
        )
        for each in costs
    )
    return table((by, *_COLUMNS), rows, caption, count=count)


def losses_grid(by: str, losses: Sequence[LostTime], count: int, *, is_finding: bool) -> Grid:
    """The table of time lost, of ``count`` rows in all."""
    columns = (by, "taps", "sessions", *(("findings",) if is_finding else ()), "lost s", "% of I/O time", "first")
    rows = (
        (
            cells.short(each.label),
            each.tap_count,
            each.session_count,
            *((each.count,) if is_finding else ()),
            cells.seconds(each.cost_ns),
            cells.percent(each.share),
            cells.clock(each.first_ns),
        )
        for each in losses
    )
    return table(columns, rows, count=count)


def write_csv(answer: QueryResult, stream: TextIO) -> None:
    """A query's answer as CSV; nulls are empty, and no text controls a terminal."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(cells.printable, answer.columns))
    writer.writerows(map(_cell, row.values()) for row in answer.records)


def _cell(value: object) -> object:
    return "" if value is None else cells.printable(value) if isinstance(value, str) else value


LISTED: Final = 20
"""Most captures that are named; the table ``captures`` has them all."""


def lines(result: Result, *, is_quiet: bool = False) -> Iterator[str]:
    """The lines; ``is_quiet`` has only what went wrong."""
    problems = sorted(result.problems)
    for tap, capture, status, problem in problems[:LISTED]:
        yield f"{tap}: {cells.short(capture)}: {status}: {cells.short(problem)}"
    if len(problems) > LISTED:
        yield f"{len(problems) - LISTED:,} more captures were not read to their end: see the table captures"
    for tap, count in result.lost:
        yield f"{tap}: the worker of {amounts.count(count, 'capture')} was lost again and again: read one by one"
    if is_quiet:
        return
    if not result.read_count and not result.statuses:
        yield f"{result.dataset}: nothing to do, {amounts.count(result.known_count, 'capture')} were read before"
        return
    known = f", {amounts.count(result.known_count, 'capture')} before" if result.known_count else ""
    yield (
        f"{result.dataset}: {amounts.count(result.read_count, 'capture')} read ({result.size_bytes / 1e9:.3f} GB), "
        f"{amounts.count(result.row_count, 'row')} written{known}"
    )
