"""``iscsitrace summary``: sessions, negotiated parameters, throughput, latencies and capture health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from iscsitrace.cli.read.baselines import Baseline, takes_yardsticks, yardsticks
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.errors import CaptureUnreadable
from iscsitrace.relate.mirrors import RECOGNISING
from iscsitrace.show.document import Section
from iscsitrace.show.line import say
from iscsitrace.show.terminal import show, show_heading, show_json

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
    from iscsitrace.tables.schema import SCHEMA_VERSION

    if names and not is_json and (link_bps is not None or baselines):
        raise click.UsageError("--link-rate and --socket compare sessions: use them without --by, or with --json")
    tables = (*RECOGNISING, "budget") if names else RECOGNISING
    parts = capture_input.groups(tables) if capture_input.folders else [capture_input]
    asked = _Asked(names, yardsticks(link_bps, baselines), top, is_json=is_json, is_verbose=is_verbose)
    ends = [_ended(part, tables, asked, is_alone=len(parts) == 1) for part in parts]
    if is_json:
        documents = [each.document for each in ends if each.document is not None]
        show_json(documents[0] if len(parts) == 1 else {"schema": SCHEMA_VERSION, "groups": documents})
    else:
        _show(ends)
    # captures without iSCSI count where all are
    codes = {each.exit_code for each in ends}
    code = next((each for each in (CaptureUnreadable.exit_code, 0) if each in codes), EXIT_NO_ISCSI)
    if code:
        raise click.exceptions.Exit(code)


@dataclass(frozen=True)
class _Asked:
    """What a person asks to see."""

    names: tuple[str, ...]
    yardsticks: Mapping[str, float]
    top: int
    is_json: bool
    is_verbose: bool


@dataclass(frozen=True)
class _End:
    """How the summary of captures that belong together ended."""

    sources: tuple[str, ...]
    exit_code: int
    brief: tuple[object, ...] = ()
    document: dict[str, Any] | None = None
    sections: tuple[Section, ...] = ()
    error: str = ""
    """Why there is none."""


def _show(ends: Sequence[_End]) -> None:
    """Each summary; of several first a line on each."""
    from iscsitrace.show import summary

    if len(ends) > 1:
        show([summary.overview([(each.sources, each.brief, each.error) for each in ends])])
    for each in ends:
        if len(ends) > 1:
            show_heading(f"Captures: {', '.join(each.sources)}")
        if each.error:
            say(f"iscsitrace: {each.error}", err=True)
        show(each.sections)


def _ended(part: CaptureInput, tables: Sequence[str], asked: _Asked, *, is_alone: bool) -> _End:
    """Summarises captures that belong together. What cannot be read alone ends the command."""
    try:
        trace = part.read(tables, loading=["iscsitrace.show.summary"])
    except CaptureUnreadable as error:
        if is_alone:
            raise
        if asked.is_json:
            say(f"iscsitrace: {error}", err=True)
        return _End(part.sources, error.exit_code, error=str(error))
    from iscsitrace.show import summary

    document = None
    sections: tuple[Section, ...] = ()
    if asked.names and not asked.is_json:
        sections = tuple(summary.sections_by(trace, asked.names, asked.top))
    else:
        document = summary.as_dict(trace, asked.names, asked.yardsticks)
        if not asked.is_json:
            sections = tuple(summary.sections(document, asked.top, is_verbose=asked.is_verbose))
    code = 0 if part.has_iscsi(trace) else EXIT_NO_ISCSI
    return _End(part.sources, code, summary.in_brief(trace), document, sections)
