"""A document as one HTML file: self-contained, and all text from a capture escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from iscsitrace.plots.inline import FOLLOWING
from iscsitrace.report.document import Document

_TEMPLATES: Final = "templates"
_LONG: Final = re.compile(r"(\S{24,})")
_PART: Final = re.compile(r"[._/]*[^._/]+[._/]?|[._/]+")
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:s|ms|µs|ns|%|bytes|[KMG]i?B)(?![\w]))")


def render(document: Document, version: str) -> str:
    """The HTML text."""
    environment = Environment(
        loader=PackageLoader("iscsitrace.report", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: f"{value:.4f}".rstrip("0").rstrip(".")
    environment.filters["attribute_json"] = _json
    environment.filters["prose"] = prose
    environment.filters["unbroken"] = unbroken
    script = _read("report.js")
    # the browser runs only this script and loads nothing, even if some text were taken for markup
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return environment.get_template("report.html").render(
        document=document,
        version=version,
        policy=policy,
        script=Markup(script),  # noqa: S704 -- the package's own file
        style=Markup("\n".join(_style(document))),  # noqa: S704 -- likewise, and classes that plots made
        inline=Markup,  # of pictures, which plots made
    )


def _style(document: Document) -> Iterable[str]:
    yield _read("report.css")
    names = "".join(f"--plot-{name}:{color};" for color, (name, _) in FOLLOWING.items())
    dark = "".join(f"--plot-{name}:{color};" for name, color in FOLLOWING.values())
    yield f":root{{{names}}}"
    yield f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    yield document.style_sheet


def _read(name: str) -> str:
    return files("iscsitrace.report").joinpath(_TEMPLATES, name).read_text(encoding="utf-8")


def prose(text: str) -> Markup:
    """A sentence; words between backticks become code."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if place % 2 else _breakable(piece)
        for place, piece in enumerate(pieces)
    )


def _breakable(text: str) -> Markup:
    """A text whose long names, such as paths, may be broken after a dot, a slash or an underscore."""
    parts = _LONG.split(text)
    return Markup("").join(
        Markup("<wbr>").join(escape(each) for each in _PART.findall(part)) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def unbroken(text: str) -> str:
    """A text in which no line ends between a number and its unit."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
