"""``iscsitrace report``: one file that says what limits a session, and shows why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iscsitrace.cli.options import CaptureInput, takes_captures
from iscsitrace.outputs import files as output_file

if TYPE_CHECKING:
    from iscsitrace.report.document import Document

_LARGE_BYTES = 200_000_000
"""Of larger inputs the PDUs are not read: the plots that show single ones are left out."""
_STANDARD_OUTPUT = "-"


@click.command(epilog="Example:  iscsitrace report -o slow-backup.html capture.pcapng")
@takes_captures
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Where to; - is standard output. Else the first capture's name with .report.html, in this folder.",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite the file if it exists.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(("html", "md")),
    default="html",
    show_default=True,
    help="html with plots, or md: Markdown without, for a ticket.",
)
@click.option("--session", type=click.IntRange(min=0), metavar="N", help="What it is about; else what moved most.")
@click.option("--no-plots", is_flag=True, help="Leave the plots out: quicker, and smaller.")
def command(
    capture_input: CaptureInput,
    output: str | None,
    is_forced: bool,
    file_format: str,
    session: int | None,
    no_plots: bool,
) -> None:
    """Writes one file with everything: what limits the session and what to change first of all, then where its time
    went, plots to zoom into, the slowest tasks with their frames, what the model says of changes, keys, capture health,
    and how it was made.

    The HTML needs no network and no other file: it opens from disk, prints, and can be sent. The same input gives the
    same bytes. In the place of captures it takes the folder of an experiment (`lab run NAME -o DIR`).
    """
    path = None if output == _STANDARD_OUTPUT else Path(output or _default_name(capture_input, file_format))
    if path is not None:
        output_file.check(path, is_forced=is_forced)
    from iscsitrace import __version__

    document = _document(capture_input, session, has_pictures=file_format == "html" and not no_plots)
    if file_format == "html":
        from iscsitrace.report.page import render
    else:
        from iscsitrace.report.ticket import render
    text = render(document, __version__)
    if path is None:
        sys.stdout.write(text)
        return
    with output_file.written_aside(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    click.echo(f"{path}: {document.headline}")


def _document(capture_input: CaptureInput, session: int | None, *, has_pictures: bool) -> Document:
    """Of the folder of an experiment, or of captures."""
    from iscsitrace.experiments import report
    from iscsitrace.report import captures

    folders = [Path(name) for name in capture_input.sources if Path(name).is_dir()]
    if not folders:
        trace = capture_input.read(captures.needed(_size(capture_input) > _LARGE_BYTES, has_pictures))
        return captures.describe(trace, session=session, has_pictures=has_pictures)
    if len(capture_input.sources) > 1 or session is not None:
        raise click.UsageError("the folder of an experiment stands alone, and has no sessions")
    return report.describe(folders[0], has_pictures=has_pictures)


def _default_name(capture_input: CaptureInput, file_format: str) -> str:
    first = capture_input.sources[0]
    if first == _STANDARD_OUTPUT:
        return f"report.{file_format}"
    return f"{Path(first).name.partition('.')[0] or 'capture'}.report.{file_format}"


def _size(capture_input: CaptureInput) -> int:
    """Bytes of the input on disk; 0 where that is unknown."""
    return sum(Path(name).stat().st_size for name in capture_input.sources if name != "-" and Path(name).is_file())
