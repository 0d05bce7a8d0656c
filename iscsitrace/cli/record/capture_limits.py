"""``-a`` and ``-b`` as dumpcap has them: a criterion, a colon and a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from iscsitrace.cli.units import Quantity
from iscsitrace.wording import quantities
from iscsitrace.wording.quantities import SIZE, SIZES, TIME, TIMES, parse_count, parse_quantity


def _plain_or(kind: quantities.Quantity, unit: str) -> Callable[[str], int | None]:
    """A number in dumpcap's unit, or a quantity with a unit."""
    return lambda text: kind.parse(f"{text}{unit}") or kind.parse(text)


_MINUTE_NS = 60 * TIMES["s"]
_AGES = TIMES | {"": TIMES["s"], "min": _MINUTE_NS, "h": 60 * _MINUTE_NS, "d": 1440 * _MINUTE_NS}
_ROOMS = SIZES | {"": SIZES["KB"], "T": 1 << 40, "TB": 10**12}


def _in(units: dict[str, int]) -> Callable[[str], int | None]:
    return lambda text: parse_quantity(text, units)


_CRITERIA: dict[str, tuple[str, Callable[[str], int | None], str]] = {
    "duration": (
        "duration_ns",
        _plain_or(TIME, "s"),
        'seconds, or a time like "5ms"',
    ),
    "filesize": ("bytes", _plain_or(SIZE, "KB"), 'kB (1000), or a size like "100M"'),
    "files": ("files", parse_count, "a number above 0"),
    "packets": ("packets", parse_count, "a number above 0"),
    "age": ("age_ns", _in(_AGES), 'seconds, or a time like "36h" or "7d"'),
    "total": ("total_bytes", _in(_ROOMS), 'kB (1000), or a size like "50G" or "2T"'),
    "free": ("free_bytes", _in(_ROOMS), 'kB (1000), or a size like "50G" or "2T"'),
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


STOPS = ("duration", "filesize", "packets", "files")
"""What `-a` takes."""
_KEPT = {"files": "files", "total_bytes": "bytes", "age_ns": "age_ns", "free_bytes": "free_bytes"}
"""Limits of `-b` that remove files, by their names in the core's retention."""


def retention(next_file: dict[str, int]) -> dict[str, int]:
    """Takes the limits that remove files from those of `-b`; a usage error where no limit begins a next file."""
    kept = {there: next_file.pop(name) for name, there in _KEPT.items() if name in next_file}
    if kept and not next_file:
        raise click.UsageError(
            "-b files, age, total and free remove files of a ring: add -b filesize, duration or packets"
        )
    return kept


def gathered(limits: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Limits by their names in the core; a usage error when one is given twice."""
    found = dict(limits)
    if len(found) < len(limits):
        raise click.UsageError("a criterion of -a or -b is given twice")
    return found
