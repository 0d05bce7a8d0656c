"""The result of ``fleet run`` as lines: what was read, and each capture that was not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.fleet.run import Result

LISTED: Final = 20
"""Most captures that are named; the table ``captures`` has them all."""


def lines(result: Result, *, is_quiet: bool = False) -> Iterator[str]:
    """The lines; ``is_quiet`` has only what went wrong."""
    problems = sorted(result.problems)
    for tap, capture, status, problem in problems[:LISTED]:
        yield f"{tap}: {cells.short(capture)}: {status}: {cells.short(problem)}"
    if len(problems) > LISTED:
        yield f"{len(problems) - LISTED:,} more captures were not read to their end: see the table captures"
    for tap, count in result.lost:
        yield f"{tap}: the worker of {_counted(count, 'capture')} was lost again and again: read one by one"
    if is_quiet:
        return
    if not result.read_count and not result.statuses:
        yield f"{result.dataset}: nothing to do, {_counted(result.known_count, 'capture')} were read before"
        return
    known = f", {_counted(result.known_count, 'capture')} before" if result.known_count else ""
    yield (
        f"{result.dataset}: {_counted(result.read_count, 'capture')} read ({result.size_bytes / 1e9:.3f} GB), "
        f"{_counted(result.row_count, 'row')} written{known}"
    )


def _counted(amount: int, noun: str) -> str:
    return f"{cells.count(amount)} {noun if amount == 1 else noun + 's'}"
