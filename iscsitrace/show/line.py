"""One line on standard output or standard error; no text of a capture or of a peer in it controls a terminal."""

from __future__ import annotations

import click

from iscsitrace.wording.cells import printable


def say(text: str, *, err: bool = False) -> None:
    """Prints the line, with characters that control a terminal escaped."""
    click.echo(printable(text), err=err)
