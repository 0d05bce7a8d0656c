"""Results as a notebook shows them: a document of text and tables, or a picture. ``print`` shows the command's text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iscsitrace.errors import InputInvalid
from iscsitrace.notebook import html
from iscsitrace.outputs import files
from iscsitrace.outputs.document import Section
from iscsitrace.outputs.terminal import show

if TYPE_CHECKING:
    from iscsitrace.analysis.diagnosis.examination import Diagnosis
    from iscsitrace.analysis.fit.points import Fit
    from iscsitrace.plots.kind import Drawing
    from iscsitrace.plots.subject import Subject


ENDINGS = ("png", "svg", "pdf")


class Document:
    """The result of a command: shown as its text, or as HTML; ``as_dict()`` is its JSON document."""

    def __init__(self, sections: Iterable[Section], document: Mapping[str, Any]) -> None:
        self._sections = tuple(sections)
        self._document = dict(document)

    def as_dict(self) -> dict[str, Any]:
        """What the command prints with ``--json``."""
        return self._document

    @cached_property
    def _text(self) -> str:
        with redirect_stdout(io.StringIO()) as text:
            show(self._sections)
        return text.getvalue().strip("\n")

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return html.of_sections(self._sections)


class Diagnosed(Document):
    """The result of ``Trace.diagnose``."""

    def __init__(self, sections: Iterable[Section], document: Mapping[str, Any], diagnosis: Diagnosis) -> None:
        super().__init__(sections, document)
        self.diagnosis = diagnosis
        """Opinions by session and by connection, as Python objects."""

    @property
    def found(self) -> frozenset[str]:
        """The names of all findings."""
        return frozenset(self.diagnosis.found)


class Fitted(Document):
    """The result of ``Trace.fit``."""

    def __init__(self, sections: Iterable[Section], document: Mapping[str, Any], result: Fit) -> None:
        super().__init__(sections, document)
        self.result = result
        """k, d, s and C with confidence intervals, and the points."""


class Picture:
    """The result of ``Trace.plot``; the same bytes as `iscsitrace plot` writes."""

    def __init__(self, drawing: Drawing, about: Subject) -> None:
        self._drawing = drawing
        self._about = about

    @property
    def title(self) -> str:
        """What it shows."""
        return self._drawing.title

    def __repr__(self) -> str:
        return f"<Picture {self.title}>"

    def save(self, path: str | PathLike[str], *, is_forced: bool = False) -> None:
        """Writes NAME.png, NAME.svg or NAME.pdf; OutputExists if there is such a file and not ``is_forced``."""
        target = Path(path)
        ending = target.suffix.removeprefix(".")
        if ending not in ENDINGS:
            raise InputInvalid(f"{target} has no known format: end it with {', '.join(f'.{each}' for each in ENDINGS)}")
        files.check(target, is_forced=is_forced, inputs=())
        content = self._bytes(ending)
        with files.written_aside(target) as partial:
            partial.write_bytes(content)

    def _repr_png_(self) -> bytes:
        return self._bytes("png")

    def _bytes(self, ending: str) -> bytes:
        from iscsitrace.plots import picture

        stream = io.BytesIO()
        picture.write(stream, ending, self._drawing, self._about)
        return stream.getvalue()
