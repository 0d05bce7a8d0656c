"""``iscsitrace docs``: a page of the docs in the terminal."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from iscsitrace.cli.sections import SectionedCommand


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from iscsitrace.show import pages

    return [CompletionItem(name) for name in pages.NAMES if name.startswith(incomplete)]


@click.command(cls=SectionedCommand, epilog="Example:  iscsitrace docs capture permission")
@click.argument("name", metavar="[PAGE]", required=False, shell_complete=_complete)
@click.argument("section", metavar="[SECTION]", required=False, default="")
@click.option(
    "--samples",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write the sample captures that the tutorial reads into this new folder.",
)
def command(name: str | None, section: str, samples: Path | None) -> None:
    """Show a page of the docs, or list the pages.

    SECTION shows only the section whose title begins with it: `iscsitrace docs method 4`.
    A pager shows the page on a terminal; into a pipe it is Markdown.
    """
    from iscsitrace.show import pages
    from iscsitrace.show.document import Section, table
    from iscsitrace.show.terminal import show

    if samples:
        pages.write_samples(samples)
    if name:
        pages.show(pages.page(name, section))
    elif not samples:
        show([Section("", (table(("page", "title"), list(pages.titles())),))])
