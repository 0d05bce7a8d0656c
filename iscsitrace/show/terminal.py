"""The terminal: headings, lines and tables of text, or one JSON document.

On a terminal tables are drawn by Rich; into a pipe they are plain aligned text without colour, the same every time.
Text from a capture is shown with its control characters escaped, so that no capture can drive a terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import click

from iscsitrace.show.document import Section, more_rows
from iscsitrace.wording.cells import text as printable

_FILTER = "frame.number in {"
"""What a display filter for frames begins with."""
_PROSE_WIDTH = 24
"""Columns of sentences may be folded to this width."""
_COLUMN_GAP = 2
"""Blanks beside each column."""
_MOST_ROWS = 500
"""Rows of a table on a terminal; a pipe gets all."""
_MOST_TURNED = 8
_LEAST_LINES_TURNED = 5
"""A table that is too wide is turned, if it has at most so many rows, and at least so many columns."""


def show(sections: Iterable[Section]) -> None:
    """A document: each section's title, lines and tables."""
    for section in sections:
        if section.title:
            show_heading(section.title)
        for line in section.lines:
            show_line(line)
        for grid in section.grids:
            if grid.caption:
                show_heading(grid.caption)
            show_table(grid.columns, grid.rows)
            for note in grid.notes:
                show_line(note)


def show_heading(text: str) -> None:
    """A heading, in bold on a terminal."""
    click.echo()
    click.secho(printable(text), bold=True)


def show_line(text: str) -> None:
    """One line of text; on a terminal it is folded between words, unless it is a display filter to be copied."""
    line = printable(text)
    width = shutil.get_terminal_size().columns
    if sys.stdout.isatty() and len(line) > width and _FILTER not in line:
        indent = line[: len(line) - len(line.lstrip(" -"))]
        line = textwrap.fill(
            line,
            width,
            subsequent_indent=" " * len(indent),
            drop_whitespace=True,
            break_long_words=False,
            break_on_hyphens=False,
        )
    click.echo(line)


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; a column whose texts all are numbers (or null) is aligned to the right."""
    texts = [[printable(value) for value in row] for row in rows]
    if not texts:
        click.echo("(none)")
        return
    is_right = [all(_is_number(row[place]) for row in texts) for place in range(len(headings))]
    if not sys.stdout.isatty():
        _show_plain(headings, texts, is_right)
        return
    cut = texts[:_MOST_ROWS]
    if not _show_rich(headings, cut, is_right) and not _show_turned(headings, cut):
        _show_plain(headings, cut, is_right)
    for note in more_rows(len(texts) - len(cut)):
        show_line(f"{note} A pipe gets all of them, as in: iscsitrace ... | less -S")


def _show_plain(headings: Sequence[str], texts: list[list[str]], is_right: list[bool]) -> None:
    widths = [max(len(heading), *(len(row[place]) for row in texts)) for place, heading in enumerate(headings)]
    for line in (list(headings), *texts):
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_right, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _show_rich(headings: Sequence[str], texts: list[list[str]], is_right: list[bool]) -> bool:
    """Draws the table, if it fits the terminal with none but its headings and prose folded."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    console = Console(highlight=False)
    columns = list(zip(headings, zip(*texts, strict=True), is_right, strict=True))
    whole = [max(map(len, (heading, *cells))) for heading, cells, _ in columns]
    narrow = [max([*map(len, heading.split()), *map(_narrow, cells)]) for heading, cells, _ in columns]
    gaps = _COLUMN_GAP * len(columns)
    if sum(narrow) + gaps > console.width:
        return False
    is_folded = sum(whole) + gaps > console.width
    for (heading, cells, right), width in zip(columns, narrow, strict=True):
        is_one_line = not any(" " in cell for cell in cells)
        lines = textwrap.wrap(heading, width) if is_folded and is_one_line else [heading]
        table.add_column(Text("\n".join(lines)), justify="right" if right else "left", no_wrap=is_one_line)
    for row in texts:
        table.add_row(*(Text(cell) for cell in row))  # Text, for a name from a capture is no markup
    console.print(table)
    return True


def _narrow(cell: str) -> int:
    """The columns to which a cell may be folded: between words, but a sentence no further than is readable."""
    if cell.count(" ") > 2:
        return min(len(cell), _PROSE_WIDTH)
    return max(map(len, cell.split()), default=0)


def _show_turned(headings: Sequence[str], texts: list[list[str]]) -> bool:
    """Shows few rows beside each other, or below each other where that is too wide: each line begins with a heading."""
    if len(texts) > _MOST_TURNED or len(headings) < _LEAST_LINES_TURNED:
        return False
    indent = max(map(len, headings)) + _COLUMN_GAP
    widths = [max(map(len, row)) + _COLUMN_GAP for row in texts]
    is_beside = indent + sum(widths) - _COLUMN_GAP <= shutil.get_terminal_size().columns
    for rows in [texts] if is_beside else [[row] for row in texts]:
        click.echo()
        for place, heading in enumerate(headings):
            cells = [row[place].ljust(width) for row, width in zip(rows, widths if is_beside else [0], strict=True)]
            click.echo((heading.ljust(indent) + "".join(cells)).rstrip())
    return True


def _is_number(text: str) -> bool:
    return (
        text == "-" or text.removeprefix(">").lstrip("-").replace(".", "", 1).removesuffix("%").rstrip("KMG").isdigit()
    )


def envelope(trace: Any) -> dict[str, Any]:
    """The head of every JSON document: schema number, tool, input, options."""
    provenance: dict[str, Any] = trace.provenance
    return provenance


def show_json(document: dict[str, Any]) -> None:
    """A document as JSON: nulls as null, keys in the order given."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))
