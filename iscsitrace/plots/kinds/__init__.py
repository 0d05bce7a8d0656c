"""The kinds of plots: every file here is one kind, called by the file's name, and declares it as ``KIND``.

The names and the first line of each file are known without importing it, so that a command's help imports neither
matplotlib nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from iscsitrace.plots.kind import Kind

_FILES: Final = sorted(
    (file for file in files(__name__).iterdir() if file.name.endswith(".py") and not file.name.startswith("_")),
    key=lambda file: file.name,
)
NAMES: Final = tuple(file.name.removesuffix(".py") for file in _FILES)
OLD_NAMES: Final = {"budget": "time_breakdown"}
"""Kinds by their old names, which are accepted."""


def load(name: str) -> Kind[Any]:
    """The kind of this name; imports matplotlib."""
    found: Kind[Any] = import_module(f"{__name__}.{OLD_NAMES.get(name, name)}").KIND
    return found


def summaries() -> dict[str, str]:
    """What each kind shows, by its name: the first line of its file."""
    lines = (file.read_text(encoding="utf-8").partition("\n")[0] for file in _FILES)
    return {name: line.strip('"').rstrip(".") for name, line in zip(NAMES, lines, strict=True)}
