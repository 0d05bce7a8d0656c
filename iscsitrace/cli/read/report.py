"""``iscsitrace report``: one file that shows what limits a session, and why."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import SESSION_ATTRIBUTES, CaptureInput, by, takes_captures_or_experiment
from iscsitrace.cli.read.baselines import Baseline, rates_of, takes_yardsticks, yardsticks
from iscsitrace.cli.read.model_fit import survey_each
from iscsitrace.cli.read.model_options import of_each, takes_named_settings
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.show import files as output_file
from iscsitrace.show.line import say

if TYPE_CHECKING:
    from iscsitrace.show.document import Document

_LARGE_BYTES = 200_000_000
"""Largest input for which PDUs are read; above it, plots of single PDUs are omitted."""
_STANDARD_OUTPUT = "-"


@click.command(cls=SectionedCommand, epilog="Example:  iscsitrace report -o slow-backup.html capture.pcapng")
@takes_captures_or_experiment
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Output file; - is standard output. Default: the first capture's name with .report.html, in this folder.",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite the file if it exists.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(("html", "md")),
    help="html with plots, or md (Markdown, without plots) for a ticket. Default: that of the file's name, or html.",
)
@click.option(
    "--session",
    type=click.IntRange(min=0),
    metavar="N",
    help="Session of the report. Default: that of the headline.",
)
@by(SESSION_ATTRIBUTES, "the verdicts of all sessions by this in a table of its own")
@click.option("--no-plots", is_flag=True, help="Omit the plots: faster, and a smaller file.")
@click.option(
    "--sweep",
    "is_sweep",
    is_flag=True,
    help="The captures differ in settings: delay, I/O size, queue depth, negotiated parameters. Each is read alone; "
    "its sessions are points of one plot, with the model.",
)
@takes_yardsticks
@takes_named_settings
def command(
    capture_input: CaptureInput,
    output: str | None,
    is_forced: bool,
    file_format: str | None,
    session: int | None,
    names: tuple[str, ...],
    no_plots: bool,
    is_sweep: bool,
    link_bps: int | None,
    baselines: tuple[Baseline, ...],
    named: tuple[dict[str, Any], ...],
) -> None:
    """Writes a report: what limits the session and what to change, then the time breakdown, zoomable plots, the slowest
    commands with their frames, model predictions, negotiated parameters, capture health, and version and options.

    The HTML file needs no network and no other file. The same input gives the same bytes. Instead of captures, the
    command takes the folder of an experiment (`lab run NAME -o DIR`).

    With --sweep the report shows throughput over the settings in which the captures differ: measured and by the model.
    """
    if named and not is_sweep:
        raise click.UsageError("--at names settings of a sweep: use it with --sweep")
    if is_sweep and session is not None:
        raise click.UsageError("a sweep has all sessions: use it without --session")
    if is_sweep and names:
        raise click.UsageError("a sweep compares captures: use it without --by")
    file_format = file_format or ("md" if output and output.endswith(".md") else "html")
    path = None if output == _STANDARD_OUTPUT else Path(output or _default_name(capture_input, file_format))
    if path is not None:
        output_file.check(path, is_forced=is_forced, inputs=capture_input.sources)
    from iscsitrace import __version__

    has_pictures = file_format == "html" and not no_plots
    written = [] if path is None else [path.parent]
    if has_pictures:
        # makes a cache of fonts on its first use
        import_module("iscsitrace.plots.style")
    if is_sweep:
        document = _sweep(capture_input, named, link_bps, baselines, written, has_pictures=has_pictures)
    else:
        compared = yardsticks(link_bps, baselines)
        document = _document(capture_input, session, names, compared, written, has_pictures=has_pictures)
    if file_format == "html":
        from iscsitrace.show import page

        text = page.render(document, __version__)
    else:
        from iscsitrace.show import markdown

        text = markdown.render(document)
    if path is None:
        sys.stdout.write(text)
        return
    with output_file.written_aside(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    say(f"{path}: {document.opening.headline}")


def _sweep(
    capture_input: CaptureInput,
    named: tuple[dict[str, Any], ...],
    link_bps: int | None,
    baselines: Sequence[Baseline],
    written: Sequence[Path],
    *,
    has_pictures: bool,
) -> Document:
    """The document on captures as points of a sweep."""
    settings = of_each(capture_input.sources, named)
    if any(Path(name).is_dir() for name in capture_input.sources):
        raise click.UsageError("--sweep takes captures: the report on the folder of an experiment has its own grid")
    from iscsitrace.fit.sweep import SweptCapture, sweeps
    from iscsitrace.report import swept

    read = survey_each(capture_input, written)
    captures = [SweptCapture(*each) for each in zip(capture_input.sources, read.points, settings, strict=True)]
    points = [point for found in read.points for point in found]
    found = sweeps(captures, rates_of(points, baselines), None if link_bps is None else link_bps / 8)
    return swept.describe(found, read.missing, read.inputs, has_pictures=has_pictures)


def _document(
    capture_input: CaptureInput,
    session: int | None,
    names: Sequence[str],
    compared: Mapping[str, float],
    written: Sequence[Path],
    *,
    has_pictures: bool,
) -> Document:
    """The document on the folder of an experiment, or on captures."""
    from iscsitrace.report import captures
    from iscsitrace.studies import report

    folders = [Path(name) for name in capture_input.sources if Path(name).is_dir()]
    if not folders:
        needed = captures.needed(capture_input.size_bytes > _LARGE_BYTES, has_pictures)
        trace = capture_input.read(needed, written=written)
        return captures.describe(trace, session=session, has_pictures=has_pictures, by=names, yardsticks=compared)
    if len(capture_input.sources) > 1 or session is not None or names or compared:
        raise click.UsageError("name one folder of an experiment alone, without --session, --by, --link-rate, --socket")
    return report.describe(folders[0], has_pictures=has_pictures)


def _default_name(capture_input: CaptureInput, file_format: str) -> str:
    first = capture_input.sources[0]
    if first == _STANDARD_OUTPUT:
        return f"report.{file_format}"
    return f"{Path(first).name.partition('.')[0] or 'capture'}.report.{file_format}"
