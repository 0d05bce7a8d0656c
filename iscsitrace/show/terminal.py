"""The terminal: headings, lines and tables of text, or one JSON document.

A table is aligned text. On a terminal its headings are bold, and sentences in it are folded where it would be too wide;
into a pipe it is the same every time.
Text from a capture is shown with its control characters escaped, so that no capture can drive a terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Any, TypeAlias

import click

from iscsitrace.show.document import (
    NO_FINDINGS,
    Block,
    Breakdown,
    Findings,
    FoundProblem,
    Grid,
    Heading,
    HeatMap,
    KeyFigures,
    Plots,
    Section,
    more_rows,
    table,
)
from iscsitrace.wording.cells import printable

_Rows: TypeAlias = Sequence[tuple[str, ...]]
_FILTER = "frame.number in {"
"""What a display filter for frames begins with."""
_PIECES = 4096
"""Pieces of JSON, or rows, that are written together."""
_PROSE_WIDTH = 24
"""Columns of sentences may be folded to this width."""
_COLUMN_GAP = 2
"""Blanks between columns."""
_MOST_ROWS = 500
"""Rows of a table on a terminal; a pipe gets all."""
_MOST_TURNED = 8
_LEAST_LINES_TURNED = 5
"""A table that is too wide is turned, if it has at most so many rows, and at least so many columns."""


def show(sections: Iterable[Section]) -> None:
    """A document: each section's title and blocks."""
    for section in sections:
        if section.title:
            show_heading(section.title)
        for block in section.blocks:
            _show_block(block)


def _show_block(block: Block) -> None:
    match block:
        case str():
            show_line(block)
        case Heading():
            show_heading(block.text)
        case Grid():
            _show_grid(block)
        case Breakdown():
            _show_grid(block.short)
        case KeyFigures():
            for fact in block.every:
                show_line(f"{fact.name}: {fact.value}" + (f" ({fact.meaning})" if fact.meaning else ""))
        case Findings():
            for line in chain.from_iterable(map(_finding, block.every)) if block.every else (NO_FINDINGS,):
                show_line(line)
        case Plots() | HeatMap():
            pass


def _finding(found: FoundProblem) -> Iterator[str]:
    cost = f", {found.cost}" if found.cost else ""
    yield f"{found.name} ({found.severity}{cost}): {found.text}"
    for step in found.steps:
        yield f"    - {step.advice}" + (f" ({step.notes})" if step.notes else "")
    if found.display_filter:
        yield f"    {found.display_filter}"


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
    _show_grid(table(headings, rows))


def _show_grid(found: Grid) -> None:
    if found.caption:
        show_heading(found.caption)
    grid = table(map(printable, found.columns), found.rows)
    if not grid.rows:
        click.echo("(none)")
    elif not sys.stdout.isatty():
        _show_aligned(grid, grid.rows, _whole_widths(grid, grid.rows))
    else:
        cut = grid.rows[:_MOST_ROWS]
        widths = _folded_widths(grid, cut, shutil.get_terminal_size().columns)
        if widths is not None:
            _show_aligned(grid, cut, widths)
        elif not _show_turned(grid, cut):
            _show_aligned(grid, cut, _whole_widths(grid, cut))
        for note in more_rows(len(grid.rows) - len(cut)):
            show_line(f"{note} A pipe gets all of them, as in: iscsitrace ... | less -S")
    for note in found.notes:
        show_line(note)


def _whole_widths(grid: Grid, rows: _Rows) -> list[int]:
    return [max(map(len, texts)) for texts in zip(grid.columns, *rows, strict=True)]


def _folded_widths(grid: Grid, rows: _Rows, columns: int) -> list[int] | None:
    """The widths of a table that fits so many columns, with none but its headings and sentences folded; or None."""
    texts = list(zip(grid.columns, *rows, strict=True))
    whole = _whole_widths(grid, rows)
    least = [max([*map(len, heading.split()), *map(_narrow, cells)]) for heading, *cells in texts]
    room = columns - _COLUMN_GAP * (len(texts) - 1)
    if sum(least) > room:
        return None
    # the widest first: no column is folded to less than one that is left whole
    widest = max(whole)
    while sum(widths := [max(low, min(high, widest)) for low, high in zip(least, whole, strict=True)]) > room:
        widest -= 1
    return widths


def _show_aligned(grid: Grid, rows: _Rows, widths: Sequence[int]) -> None:
    is_number = grid.is_number
    for line in (grid.columns, *rows):
        folded = [_folded(cell, width) for cell, width in zip(line, widths, strict=True)]
        for cells in zip_longest(*folded, fillvalue=""):
            padded = [
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(cells, widths, is_number, strict=True)
            ]
            click.secho((" " * _COLUMN_GAP).join(padded).rstrip(), bold=True if line is grid.columns else None)


def _folded(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)


def _narrow(cell: str) -> int:
    """The columns to which a cell may be folded: between words, but a sentence no further than is readable."""
    if cell.count(" ") > 2:
        return min(len(cell), _PROSE_WIDTH)
    return max(map(len, cell.split()), default=0)


def _show_turned(grid: Grid, shown: _Rows) -> bool:
    """Shows few rows beside each other, or below each other where that is too wide: each line begins with a heading."""
    if len(shown) > _MOST_TURNED or len(grid.columns) < _LEAST_LINES_TURNED:
        return False
    indent = max(map(len, grid.columns)) + _COLUMN_GAP
    widths = [max(map(len, row)) + _COLUMN_GAP for row in shown]
    is_beside = indent + sum(widths) - _COLUMN_GAP <= shutil.get_terminal_size().columns
    for rows in [shown] if is_beside else [[row] for row in shown]:
        click.echo()
        for place, heading in enumerate(grid.columns):
            cells = [row[place].ljust(width) for row, width in zip(rows, widths if is_beside else [0], strict=True)]
            click.echo((heading.ljust(indent) + "".join(cells)).rstrip())
    return True


def show_json(document: dict[str, Any]) -> None:
    """A document as JSON: nulls as null, keys in the order given. It is never whole in memory as text."""
    pieces = json.JSONEncoder(indent=2, allow_nan=False).iterencode(document)
    while part := "".join(islice(pieces, _PIECES)):
        click.echo(part, nl=False)
    click.echo()


def json_rows(document: Mapping[str, Any], name: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A document that ends with rows as JSON, one row at a time: there may be millions."""
    start, separator = f'{json.dumps(document)[:-1]}, "{name}": [', "\n"
    for row in rows:
        yield start + separator + json.dumps(row, allow_nan=False)
        start, separator = "", ",\n"
    yield f"{start}\n]}}\n"


def show_json_line(document: dict[str, Any]) -> None:
    """The same as one line, for a stream of documents."""
    start = "{"
    for name, value in document.items():
        click.echo(f"{start}{json.dumps(name)}: ", nl=False)
        start = ", "
        if not isinstance(value, list):
            click.echo(json.dumps(value, allow_nan=False), nl=False)
            continue
        begin = "["
        for first in range(0, len(value), _PIECES):
            rows = json.dumps(value[first : first + _PIECES], allow_nan=False)
            click.echo(begin + rows[1:-1], nl=False)
            begin = ", "
        click.echo("]" if value else "[]", nl=False)
    click.echo("}")
