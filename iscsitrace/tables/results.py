"""What the methods of a trace return, as types: ``iscsitrace.notebook``, which is above this package, makes them."""

from __future__ import annotations

from os import PathLike
from typing import Any, Protocol


class Document(Protocol):
    """The result of a command: printed as its text, shown as HTML in a notebook."""

    def as_dict(self) -> dict[str, Any]:
        """What the command prints with ``--json``."""

    def _repr_html_(self) -> str: ...


class Diagnosed(Document, Protocol):
    """The result of ``Trace.diagnose``."""

    diagnosis: Any
    """Opinions by session and by connection (``analysis.findings.examination.Diagnosis``)."""

    @property
    def found(self) -> frozenset[str]:
        """The names of all findings."""


class Fitted(Document, Protocol):
    """The result of ``Trace.fit``."""

    result: Any
    """k, d, s and C with confidence intervals, and the points (``analysis.fit.points.Fit``)."""


class Picture(Protocol):
    """The result of ``Trace.plot``."""

    @property
    def title(self) -> str:
        """What it shows."""

    def save(self, path: str | PathLike[str], *, is_forced: bool = False) -> None:
        """Writes NAME.png, NAME.svg or NAME.pdf; OutputExists if there is such a file and not ``is_forced``."""

    def _repr_png_(self) -> bytes: ...
