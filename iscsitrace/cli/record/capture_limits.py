"""``-a`` and ``-b`` as dumpcap takes them: a criterion, a colon and a value."""

from __future__ import annotations

from typing import Any

import click

from iscsitrace.cli.units import Quantity
from iscsitrace.wording.quantities import SIZES, TIMES, parse_quantity

_CRITERIA = {"duration": "duration_ns", "filesize": "bytes", "files": "files", "packets": "packets"}


class Limit(Quantity):
    """``CRITERION:VALUE``, to the name of a limit of the core and its value.

    Plain numbers are seconds and kB (1000), as dumpcap has them; units may be written, too.
    """

    name = "CRITERION:VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """The limit; fails with a line that says how to write one."""
        if isinstance(value, tuple):
            return value
        criterion, _, text = value.partition(":")
        if criterion not in _CRITERIA:
            self.fail(f"{value!r} is no limit; write one of {', '.join(_CRITERIA)}, a colon and a value", param, ctx)
        found = _amount(criterion, text.strip())
        if not found:
            self.fail(f"{text!r} is no value of {criterion}; {_HINTS[criterion]}", param, ctx)
        return _CRITERIA[criterion], found


_HINTS = {
    "duration": "write seconds, or a number and a unit, like 500ms",
    "filesize": "write kB, or a number and a unit, like 100M",
    "files": "write a number above 0",
    "packets": "write a number above 0",
}


def _amount(criterion: str, text: str) -> int | None:
    if criterion == "duration":
        return parse_quantity(text, TIMES) or parse_quantity(f"{text}s", TIMES)
    if criterion == "filesize":
        plain = parse_quantity(f"{text}KB", SIZES)
        return plain if plain is not None else parse_quantity(text, SIZES)
    return parse_quantity(text, {"": 1})


def gathered(limits: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Limits by their names in the core; a usage error when one is given twice."""
    found = dict(limits)
    if len(found) < len(limits):
        raise click.UsageError("a criterion of -a or -b is given twice")
    return found
