"""The costs of ``fleet top`` as a table, and a query's answer in each format."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TextIO

from iscsitrace.show.document import Grid, more_rows, table
from iscsitrace.show.latencies import percentile
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.fleet.sql import Answer
    from iscsitrace.fleet.top import Cost, Loss

_COLUMNS: Final = (
    *("taps", "commands", "MB", "busy s", "latency s", "p50", "p95", "p99", "max"),
    "no status",
    "errors",
)


def grid(by: str, costs: Sequence[Cost], count: int) -> Grid:
    """The table of costs, of ``count`` in all. Latencies are in ms; > is the wait of a command without a status."""
    rows = (
        (
            cells.short(each.label),
            each.tap_count,
            each.command_count,
            cells.megabytes(each.bytes),
            cells.seconds(each.busy_ns),
            cells.seconds(each.latency_ns),
            *(percentile(each.percentiles, name) for name in ("p50", "p95", "p99", "max")),
            each.lost_count,
            each.error_count,
        )
        for each in costs
    )
    return replace(table((by, *_COLUMNS), rows), notes=more_rows(count - len(costs)))


def losses_grid(by: str, losses: Sequence[Loss], count: int, *, is_finding: bool) -> Grid:
    """The table of time lost, of ``count`` rows in all."""
    columns = (by, "taps", "sessions", *(("findings",) if is_finding else ()), "lost s", "% of busy", "first")
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
    return replace(table(columns, rows), notes=more_rows(count - len(losses)))


def write_csv(answer: Answer, stream: TextIO) -> None:
    """A query's answer as CSV; nulls are empty."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(["" if value is None else value for value in row.values()] for row in answer.records)
