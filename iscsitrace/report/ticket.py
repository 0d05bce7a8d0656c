"""A document as Markdown, for a ticket or a mail, without plots."""

from __future__ import annotations

import re
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from iscsitrace.report.document import Document

_SPECIAL: Final = re.compile(r"([\\`*\[\]<|~&]|(?<!\w)_|_(?!\w))")
"""Characters that Markdown takes for markup; an underscore within a word is not one."""


def render(document: Document, version: str) -> str:
    """The Markdown text."""
    environment = Environment(
        loader=PackageLoader("iscsitrace.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escaped,
    )
    environment.filters["code"] = code
    environment.filters["prose"] = prose
    text = environment.get_template("report.md").render(document=document, version=version)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def code(value: str) -> Markup:
    """Text as code, with a fence longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", value)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if value.startswith("`") or value.endswith("`") else ""
    # a bar would end a table cell, even within code
    return Markup(f"{fence}{pad}{value.replace('|', chr(92) + '|')}{pad}{fence}")  # noqa: S704 -- Markdown, not HTML


def prose(text: str) -> Markup:
    """A sentence; words between backticks become code."""
    pieces = text.split("`")
    return Markup("").join(code(piece) if place % 2 else _escaped(piece) for place, piece in enumerate(pieces))


def _escaped(value: Any) -> Any:
    """A value of the document as Markdown; Markup is escaped already."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    # keep blanks at the ends: they separate code or a bracket from the next word
    return Markup(_SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", value)))  # noqa: S704 -- Markdown, not HTML
