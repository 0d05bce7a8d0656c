"""What a notebook shows of a table, as HTML. Every text is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from iscsitrace.tables.schema import Column
from iscsitrace.wording import cells
from iscsitrace.wording.amounts import count

Row = Mapping[str, Any]

ROWS: Final = 10
"""So many of the first and last rows together."""
_LEFT_OUT: Final = "…"


def preview(name: str, columns: Sequence[Column], row_count: int, rows: Callable[[slice], Iterable[Row]]) -> str:
    """The first and last rows of a table; the meaning of a column where the pointer rests on its name."""
    shown = row_count if row_count <= ROWS else ROWS // 2
    cells_of: list[Iterable[Any]] = [row.values() for row in rows(slice(0, shown))]
    if row_count > ROWS:
        last = [row.values() for row in rows(slice(row_count - shown, row_count))]
        cells_of = [*cells_of, [_LEFT_OUT] * len(columns), *last]
    caption = f"<caption>{escape(name)}: {count(row_count, 'row')}</caption>"
    names = (f'<th title="{escape(column.meaning)}">{escape(column.name)}</th>' for column in columns)
    head = f"<thead><tr>{''.join(names)}</tr></thead>"
    body = "".join(map(_row, cells_of))
    return f'<div style="overflow-x: auto"><table>{caption}{head}<tbody>{body}</tbody></table></div>'


def _row(values: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<td>{escape(cells.text(value))}</td>' for value in values)}</tr>"
