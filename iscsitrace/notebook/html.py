"""Sections, previews of tables, and the overview of a trace as HTML fragments. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from jinja2 import Environment, Template

from iscsitrace.outputs.document import Section
from iscsitrace.tables.table import Table
from iscsitrace.wording import cells
from iscsitrace.wording.amounts import count

ROWS = 10
"""Rows of a preview: so many of the first and last ones together."""
_LEFT_OUT = "…"

_SECTIONS = """\
{% macro grid(each) %}
{%- if each.caption %}<p><b>{{ each.caption }}</b></p>{% endif -%}
<table><thead><tr>{% for name in each.columns %}<th style="text-align: left">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in each.rows %}<tr>{% for cell in row -%}
<td style="text-align: {{ 'right' if each.is_number[loop.index0] else 'left' }}">{{ cell }}</td>
{%- endfor %}</tr>{% endfor %}</tbody></table>
{% for note in each.notes %}<p>{{ note }}</p>{% endfor -%}
{% endmacro -%}
{% for section in sections %}
{%- if section.title %}<h4>{{ section.title }}</h4>{% endif -%}
{% for line in section.lines if line %}<p style="white-space: pre-wrap">{{ line }}</p>{% endfor -%}
{% for each in section.grids %}{{ grid(each) }}{% endfor -%}
{% endfor %}"""

_PREVIEW = """\
<div style="overflow-x: auto"><table><caption>{{ caption }}</caption><thead><tr>
{%- for column in columns %}<th title="{{ column.meaning }}">{{ column.name }}</th>{% endfor -%}
</tr></thead><tbody>{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor -%}
</tbody></table></div>"""


@cache
def _template(text: str) -> Template:
    return Environment(autoescape=True).from_string(text)


def of_sections(sections: Iterable[Section]) -> str:
    """A document."""
    return _template(_SECTIONS).render(sections=list(sections))


def preview(table: Table) -> str:
    """The first and last rows of a table; the meaning of a column where the pointer rests on its name."""
    shown = len(table) if len(table) <= ROWS else ROWS // 2
    rows: list[Sequence[str]] = [_texts(row) for row in table.select(slice(0, shown)).rows()]
    if len(table) > ROWS:
        rows.append([_LEFT_OUT] * len(table.columns))
        rows += [_texts(row) for row in table.select(slice(len(table) - shown, len(table))).rows()]
    caption = f"{table.name}: {count(len(table), 'row')}"
    return _template(_PREVIEW).render(caption=caption, columns=table.columns, rows=rows)


def _texts(row: dict[str, object]) -> list[str]:
    return [cells.text(value) for value in row.values()]
