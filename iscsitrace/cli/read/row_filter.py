"""``-Y``: which rows a command shows. Options such as ``--lun`` are short forms of conditions, and join it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_filter(example: str) -> Callable[[_Function], _Function]:
    """Add ``-Y``, which the command gets as ``row_filter``."""
    return click.option(
        "-Y",
        "row_filter",
        metavar="FILTER",
        help=f"Only rows that match this filter over their columns, like '{example}'.",
    )


def joined(row_filter: str | None, short_forms: Iterable[str]) -> str | None:
    """One filter for ``-Y`` and short forms; None for all rows."""
    parts = [each for each in (row_filter, *short_forms) if each is not None]
    return " && ".join(f"({each})" for each in parts) if len(parts) > 1 else parts[0] if parts else None


def equal(column: str, value: int | None) -> list[str]:
    """The condition that a column has this value; nothing without a value."""
    return [] if value is None else [f"{column} == {value}"]


def among(column: str, words: Iterable[str]) -> list[str]:
    """The condition that a column has one of these words; nothing without words."""
    quoted = ['"' + each.replace("\\", r"\\").replace('"', r"\"") + '"' for each in words]
    return [f"{column} in {{{', '.join(quoted)}}}"] if quoted else []
