"""Results as plain text in sections: headings, lines and tables, before anything is rendered.

The terminal, Markdown and HTML renderings read these. Texts may come from a capture: a rendering escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from iscsitrace.wording import cells


@dataclass(frozen=True)
class Grid:
    """A table of text."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    """What the table omits, or how to read it."""

    @cached_property
    def is_number(self) -> tuple[bool, ...]:
        """For each column: whether every cell is a number or ``-``. Number columns are right-aligned."""
        return tuple(
            all(_is_number(row[place]) for row in self.rows) and bool(self.rows) for place in range(len(self.columns))
        )


@dataclass(frozen=True)
class Section:
    """A heading, then lines, then tables."""

    title: str
    lines: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    identity: str = ""
    """The anchor for links within a page."""


def table(columns: tuple[str, ...], rows: Iterable[Iterable[object]], caption: str = "") -> Grid:
    """A table of values of any type."""
    return Grid(caption, columns, tuple(tuple(cells.text(value) for value in row) for row in rows))


def limited(caption: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], limit: int) -> Grid:
    """A table of the first ``limit`` rows, with a note on how many it omits."""
    every = tuple(rows)
    return Grid(caption, columns, every[:limit], more_rows(len(every) - limit))


def more_rows(count: int) -> tuple[str, ...]:
    """The note on so many rows that a table omits; none where it has all."""
    return (f"{count:,} more {'row is' if count == 1 else 'rows are'} not shown.",) if count > 0 else ()


def _is_number(cell: str) -> bool:
    """A plain number, a bound (``>5``), a percentage, or a size (``64K``)."""
    digits = (
        cell.removeprefix(">").removesuffix("%").strip().rstrip("KMG").lstrip("-+").replace(",", "").replace(".", "", 1)
    )
    return cell == "-" or digits.isdecimal()
