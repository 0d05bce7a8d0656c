"""Where output goes: text and pictures into a file by ``-o``, and progress and notes nowhere by ``-q``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iscsitrace.cli import process
from iscsitrace.cli.sections import Function

if TYPE_CHECKING:
    from iscsitrace.tables.table import Table


QUIET_HELP: Final = "Show no progress and no notes."


def quiet(text: str = QUIET_HELP) -> Callable[[Function], Function]:
    """Add ``-q``, which the command gets as ``is_quiet``; ``text`` is its help."""
    return click.option("-q", "--quiet", "is_quiet", is_flag=True, help=text)


def takes_picture(text: str) -> Callable[[Function], Function]:
    """Add ``-o``, which a command that draws gets as ``path``; ``text`` is its help."""
    file = click.Path(path_type=Path, dir_okay=False)
    return click.option("-o", "--output", "path", type=file, metavar="FILE", help=text)


def print_csv(rows: Table) -> None:
    """All columns of a table; no text in it controls a terminal."""
    from iscsitrace.show.csv_writer import write_csv

    write_csv(rows, sys.stdout.buffer, is_neutral=True)


def writes_text(function: Function) -> Function:
    """Add ``-o`` and ``--force`` to a command that prints: what it prints goes to the file, complete or not at all."""

    @click.option(
        "-o",
        "--output",
        "text_path",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write to this file instead of standard output.",
    )
    @click.option("--force", "is_forced", is_flag=True, help="Overwrite the file if it exists.")
    @functools.wraps(function)
    def wrapper(*arguments: Any, text_path: Path | None, is_forced: bool, **options: Any) -> Any:
        if text_path is None or str(text_path) == "-":
            return function(*arguments, **options)
        with _printed_to(text_path, _inputs(options), is_forced=is_forced) as ended:
            try:
                return function(*arguments, **options)
            except click.exceptions.Exit as error:
                # a finding to fail on: its text is complete
                ended.append(error)
        raise ended[0]

    return wrapper  # type: ignore[return-value]


def _inputs(options: dict[str, Any]) -> tuple[str, ...]:
    """The files that are read, which are never overwritten."""
    captures = options.get("capture_input")
    return captures.sources if captures else tuple(str(options[each]) for each in _CAPTURES if each in options)


_CAPTURES: Final = ("capture_a", "capture_b")


@contextmanager
def _printed_to(path: Path, inputs: tuple[str, ...], *, is_forced: bool) -> Iterator[list[click.exceptions.Exit]]:
    """Standard output is the file. It takes its name at the end, so its folder can still be written to."""
    from iscsitrace.show import files

    files.check(path, is_forced=is_forced, inputs=inputs)
    process.may_write(path.parent)
    terminal = sys.stdout
    with (
        files.written_aside(path) as partial,
        partial.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream,
    ):
        sys.stdout = stream
        try:
            yield []
            stream.flush()
        finally:
            sys.stdout = terminal
