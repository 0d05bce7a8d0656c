"""``iscsitrace fleet report``: one HTML file on the dataset."""

from __future__ import annotations

from pathlib import Path

import click

from iscsitrace.show.line import say


@click.command(epilog="Example:  iscsitrace fleet report dataset -o fleet.html")
@click.argument("dataset", metavar="DATASET", type=click.Path())
@click.option("-o", "--output", metavar="FILE", default="fleet.html", show_default=True, help="The file to write.")
@click.option("--force", "is_forced", is_flag=True, help="Overwrite a file that exists.")
def command(dataset: str, output: str, is_forced: bool) -> None:
    """Write a report on DATASET: what broke, where the time goes by volume, host and hour, and the captures.

    Each session that broke leads to the capture and its frames, and to the command that shows it.
    """
    from iscsitrace import __version__
    from iscsitrace.show import files as output_file

    path = Path(output)
    output_file.check(path, is_forced=is_forced)
    from iscsitrace.report.fleet import describe
    from iscsitrace.show.page import render

    document = describe(Path(dataset))
    with output_file.written_aside(path) as partial:
        partial.write_text(render(document, __version__), encoding="utf-8", errors="backslashreplace", newline="\n")
    say(f"{path}: {document.opening.headline}")
