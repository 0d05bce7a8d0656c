"""Sections as HTML fragments. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from jinja2 import Environment, Template

from iscsitrace.show.document import Section

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


@cache
def _template(text: str) -> Template:
    return Environment(autoescape=True).from_string(text)


def of_sections(sections: Iterable[Section]) -> str:
    """A document."""
    return _template(_SECTIONS).render(sections=list(sections))
