"""``-a`` and ``-b`` as dumpcap has them: a criterion, a colon and a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from iscsitrace.cli.units import Quantity
from iscsitrace.wording import quantities
from iscsitrace.wording.quantities import SIZE, TIME, parse_count


def _plain_or(kind: quantities.Quantity, unit: str) -> Callable[[str], int | None]:
    """A number in dumpcap's unit, or a quantity with a unit."""
    return lambda text: kind.parse(f"{text}{unit}") or kind.parse(text)


_CRITERIA: dict[str, tuple[str, Callable[[str], int | None], str]] = {
    "duration": (
        "duration_ns",
        _plain_or(TIME, "s"),
        'seconds, or a time like "5ms"',
    ),
    "filesize": ("bytes", _plain_or(SIZE, "KB"), 'kB (1000), or a size like "100M"'),
    "files": ("files", parse_count, "a number above 0"),
    "packets": ("packets", parse_count, "a number above 0"),
}
"""The name of a limit in the core, the parser of its value, and what to write. Plain numbers are dumpcap's units."""


class Limit(Quantity):
    """``CRITERION:VALUE``, to the name of a limit in the core and its value."""

    name = "CRITERION:VALUE"

    def __init__(self, *criteria: str) -> None:
        """``criteria`` that the command has; all if none is named."""
        self._criteria = criteria or tuple(_CRITERIA)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """The limit; fails with a line that shows how to write one."""
        if isinstance(value, tuple):
            return value
        criterion, _, text = value.partition(":")
        if criterion not in self._criteria:
            known = ", ".join(f"{each}:VALUE" for each in self._criteria)
            self.fail(f"{value!r} is not a limit; write one of {known}", param, ctx)
        name, parse, needed = _CRITERIA[criterion]
        found = parse(text.strip())
        if not found:
            self.fail(f"{criterion}: {text!r} is not {needed}", param, ctx)
        return name, found


def gathered(limits: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Limits by their names in the core; a usage error when one is given twice."""
    found = dict(limits)
    if len(found) < len(limits):
        raise click.UsageError("a criterion of -a or -b is given twice")
    return found
