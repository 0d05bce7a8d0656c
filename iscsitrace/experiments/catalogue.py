"""The experiments that come with the package, and those in other files."""

from __future__ import annotations

from pathlib import Path

from iscsitrace.errors import InputInvalid
from iscsitrace.experiments import definition
from iscsitrace.experiments.definition import Definition

_FOLDER = Path(__file__).parent / "definitions"
ENDING = ".toml"


def names() -> list[str]:
    """The names of the experiments that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob(f"*{ENDING}"))


def path_of(name: str) -> Path:
    """The file of an experiment, by name or path; InputInvalid for an unknown name."""
    if name.endswith(ENDING):
        return Path(name)
    if name not in names():
        raise InputInvalid(f"no experiment is called {name!r}; there are {', '.join(names())}; or give FILE{ENDING}")
    return _FOLDER / f"{name}{ENDING}"


def load(name: str) -> Definition:
    """An experiment, by name or path."""
    return definition.load(path_of(name))
