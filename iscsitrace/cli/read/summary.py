"""``iscsitrace summary``: sessions, negotiated parameters, throughput, latencies and capture health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import click

from iscsitrace.cli.options import (
    COMMAND_ATTRIBUTES,
    EXIT_NO_ISCSI,
    CaptureInput,
    as_json,
    by,
    takes_captures,
)
from iscsitrace.cli.output import writes_text
from iscsitrace.cli.read import groups
from iscsitrace.cli.read.baselines import Baseline, takes_yardsticks, yardsticks
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.relate.mirrors import RECOGNISING
from iscsitrace.show.document import Section

TOP = 20
"""Rows by session or connection that are shown by default."""


@click.command(
    cls=SectionedCommand,
    epilog="Example:  iscsitrace summary --from 10s --to 20s capture.pcapng",
)
@takes_captures
@as_json
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show the value that each side offered for each key.")
@by(COMMAND_ATTRIBUTES, "the commands by this, the worst first, instead of the rest")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=TOP,
    show_default=True,
    metavar="COUNT",
    help="Show only COUNT rows of tables by session or connection, the busiest first where there are more; "
    "with --by the COUNT worst.",
)
@takes_yardsticks
@writes_text
def command(
    capture_input: CaptureInput,
    is_json: bool,
    is_verbose: bool,
    names: tuple[str, ...],
    top: int,
    link_bps: int | None,
    baselines: tuple[Baseline, ...],
) -> None:
    """Show sessions, connections, negotiated parameters, throughput, I/O sizes, latencies, coverage and capture health.

    Rates are those of the commands that read, write or erase data, over the active time: the time with at least one of
    them in flight. Percentiles are measured values, not averages of two.

    Of many sessions the busiest are shown. The JSON document has them all.

    The captures of a folder are grouped by content: of those that do not belong together each group has a summary of
    its own, below a table of them all (in JSON: groups, a document for each).
    """
    if names and not is_json and (link_bps is not None or baselines):
        raise click.UsageError("--link-rate and --socket compare sessions: use them without --by, or with --json")
    tables = (*RECOGNISING, "budget") if names else RECOGNISING
    parts = capture_input.groups(tables) if capture_input.folders else [capture_input]
    asked = _SummaryOptions(names, yardsticks(link_bps, baselines), top, is_json=is_json, is_verbose=is_verbose)
    made = partial(_summarised, tables=tables, asked=asked)
    groups.tell(parts, made, _overview, is_json=is_json, many=2)


@dataclass(frozen=True)
class _SummaryOptions:
    """What a person asks to see."""

    names: tuple[str, ...]
    yardsticks: Mapping[str, float]
    top: int
    is_json: bool
    is_verbose: bool


def _overview(ends: Sequence[tuple[Sequence[str], tuple[object, ...] | None, str]]) -> Section:
    from iscsitrace.show import summary

    return summary.overview(ends)


def _summarised(part: CaptureInput, tables: Sequence[str], asked: _SummaryOptions) -> groups.GroupResult:
    trace = part.read(tables, loading=["iscsitrace.show.summary"])
    from iscsitrace.show import inputs, summary

    document = None
    sections: tuple[Section, ...] = ()
    if asked.names and not asked.is_json:
        sections = tuple(summary.sections_by(trace, asked.names, asked.top))
    else:
        document = summary.as_dict(trace, asked.names, asked.yardsticks)
        if not asked.is_json:
            shown = summary.sections(document, asked.top, is_verbose=asked.is_verbose)
            sections = (inputs.of_trace(trace), *shown)
    code = 0 if part.has_iscsi(trace) else EXIT_NO_ISCSI
    return groups.GroupResult(part.sources, code, document, summary.in_brief(trace), sections)
