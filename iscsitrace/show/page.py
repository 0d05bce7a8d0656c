"""A document as one HTML file: self-contained, and all text from a capture escaped. Or sections, for a notebook."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from iscsitrace.show.document import Block, Document, Section
from iscsitrace.wording.cells import printable
from iscsitrace.wording.sentences import sentence

_TEMPLATES: Final = "templates"
_LONG: Final = re.compile(r"(\S{24,})")
_PART: Final = re.compile(r"[._/]*[^._/]+[._/]?|[._/]+")
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:s|ms|µs|ns|%|bytes|[KMG]i?B)(?![\w]))")


def render(document: Document, version: str) -> str:
    """The page."""
    script = _read("page.js")
    # the browser runs only this script and loads nothing, even if some text were taken for markup
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return (
        _environment()
        .get_template("page.html")
        .render(
            document=document,
            version=version,
            policy=policy,
            script=Markup(script),  # noqa: S704 -- the package's own file
            style=Markup("\n".join(_style(document))),  # noqa: S704 -- likewise, and classes that plots made
        )
    )


def fragment(sections: Iterable[Section]) -> str:
    """Sections without styles and script."""
    return _environment().get_template("fragment.html").render(sections=list(sections))


def _harmless(value: object) -> object:
    """Text of a capture; markup is of the package."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("iscsitrace.show", _TEMPLATES),
        autoescape=True,
        finalize=_harmless,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: f"{value:.4f}".rstrip("0").rstrip(".")
    environment.filters["attribute_json"] = _json
    environment.filters["sentence"] = sentence
    environment.filters["prose"] = prose
    environment.filters["unbroken"] = unbroken
    environment.filters["kind"] = _kind
    environment.globals["inline"] = Markup  # of pictures, which plots made
    return environment


def _kind(block: Block) -> str:
    """The macro that writes a block."""
    return "text" if isinstance(block, str) else type(block).__name__


def _style(document: Document) -> Iterable[str]:
    from iscsitrace.plots.inline import FOLLOWING

    yield _read("page.css")
    names = "".join(f"--plot-{name}:{color};" for color, (name, _) in FOLLOWING.items())
    dark = "".join(f"--plot-{name}:{color};" for name, color in FOLLOWING.values())
    yield f":root{{{names}}}"
    yield f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    yield document.style_sheet


def _read(name: str) -> str:
    return files("iscsitrace.show").joinpath(_TEMPLATES, name).read_text(encoding="utf-8")


def prose(text: str) -> Markup:
    """A sentence; words between backticks become code."""
    pieces = printable(text).split("`")
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


def unbroken(text: str) -> Markup:
    """A text in which no line ends between a number and its unit."""
    return Markup("\N{NO-BREAK SPACE}").join(_UNIT.split(printable(text)))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
