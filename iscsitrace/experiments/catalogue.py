"""The experiments that come with the package, and any other that somebody has as a file."""

from __future__ import annotations

from pathlib import Path

from iscsitrace.errors import InputInvalid
from iscsitrace.experiments import definition
from iscsitrace.experiments.definition import Definition

_FOLDER = Path(__file__).parent / "definitions"
ENDING = ".toml"


def names() -> list[str]:
    """Of all that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob(f"*{ENDING}"))


def path_of(name: str) -> Path:
    """The definition of that name, or at that path; InputInvalid when there is none."""
    if name.endswith(ENDING):
        return Path(name)
    if name not in names():
        raise InputInvalid(f"no experiment is called {name!r}; there are {', '.join(names())}, or write FILE{ENDING}")
    return _FOLDER / f"{name}{ENDING}"


def load(name: str) -> Definition:
    """The experiment of that name, or at that path."""
    return definition.load(path_of(name))
