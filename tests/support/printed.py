"""Parses the output of a command as a person reads it: tables by their headings, amounts by their units.

It uses nothing from the package: the meaning of units, and the two spaces between columns, are defined again here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from math import ceil, floor
from typing import Any

Row = Mapping[str, Any]
Columns = Mapping[str, Any]
"""By heading: the path of a value in JSON, with the unit of the column if its heading does not end with it
(``latency_ns.p50 ms``); or what makes the cell's text of a row."""

UNITS = {
    "ns": Decimal("1e-9"), "us": Decimal("1e-6"), "µs": Decimal("1e-6"), "ms": Decimal("1e-3"), "s": Decimal(1),
    "%": Decimal("0.01"), "MB": Decimal("1e6"), "MB/s": Decimal("1e6"), "ms/MB": Decimal("1e-9"), "times": Decimal(1),
    "K": Decimal(1 << 10), "M": Decimal(1 << 20), "G": Decimal(1 << 30), "bytes": Decimal(1),
    "KiB": Decimal(1 << 10), "MiB": Decimal(1 << 20), "GiB": Decimal(1 << 30),
}  # fmt: skip
_AMOUNT = re.compile(r"([+-]?)([\d,]+(?:\.(\d+))?) ?(\D*)")


def table(text: str, *headings: str) -> list[tuple[str, ...]]:
    """The rows of the only table with these headings: the cells of each."""
    lines = text.splitlines()
    found = [
        rows
        for first, line in enumerate(lines)
        if line.split() == " ".join(headings).split()
        for rows in [_rows(lines[first:], headings)]
        if rows is not None
    ]
    assert len(found) == 1, f"{len(found)} tables with the headings {headings} in:\n{text}"
    return found[0]


def _rows(lines: Sequence[str], headings: tuple[str, ...]) -> list[tuple[str, ...]] | None:
    """The lines under the headings that have their columns, up to an empty line."""
    block = list(lines[: lines.index("")] if "" in lines else lines)
    while block:
        head, *rows = (_cells(line, _gaps(block)) for line in block)
        if head == headings:
            return rows
        block.pop()
    return None


def _gaps(block: Sequence[str]) -> list[tuple[int, int]]:
    """Positions of two or more characters that are blank in every line."""
    width = max(map(len, block))
    taken = "".join("x" if any(line[place : place + 1].strip() for line in block) else " " for place in range(width))
    return [match.span() for match in re.finditer(r" {2,}", taken)]


def _cells(line: str, gaps: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    starts, ends = [0, *(end for _, end in gaps)], [*(start for start, _ in gaps), None]
    return tuple(line[start:end].strip() for start, end in zip(starts, ends, strict=True))


LABELS = {"propagation": "network RTT", "initiator_think": "initiator idle", "ack_wait": "ACK wait"}
"""Parts of the time breakdown whose label is not their name."""


def label(part: str) -> str:
    """The label of a part of the time breakdown."""
    return LABELS.get(part, part.replace("_", " "))


def percentage(share: float | Decimal) -> str:
    """A share as in every output: whole percents from 1 to 99, otherwise two decimals that never round to 0 or 100."""
    percent = Decimal(str(share)) * 100
    if 1 <= percent <= 99 or percent in (0, 100):
        return str(round(percent))
    hundredths = (ceil if percent < 1 else floor)(percent * 100)
    return f"{Decimal(hundredths) / 100:f}"


def is_amount(cell: str, value: float | Decimal, unit: str = "") -> bool:
    """Whether a cell shows an amount in base units (seconds, bytes, a share), to its last digit."""
    match = _AMOUNT.fullmatch(cell)
    if not match:
        return False
    sign, digits, decimals, own = match.groups()
    factor = UNITS[own.strip() or unit] if own.strip() or unit else Decimal(1)
    told = Decimal(f"{sign}{digits.replace(',', '')}") * factor
    step = factor * Decimal(10) ** -len(decimals or "")
    # a share may be rounded down, so that 100 % says that nothing is missing
    limit = step if factor == UNITS["%"] else step / 2
    return abs(told - Decimal(value)) <= limit * (1 + Decimal("1e-9"))


def shows(cell: str, row: Any, told: str | Callable[[Any], str], heading: str = "") -> bool:
    """Whether a cell shows the value of a row."""
    if callable(told):
        return cell == told(row)
    path, _, unit = told.partition(" ")
    value = row
    for name in path.split("."):
        value = value[name]
    if value is None or isinstance(value, bool | str):
        return bool(cell == ("-" if value is None else ("no", "yes")[value] if isinstance(value, bool) else value))
    base = Decimal(value) * UNITS["ns"] if "_ns" in path else Decimal(value)
    last = heading.rpartition(" ")[2]
    return is_amount(cell, base, unit or (last if last in UNITS else ""))


def check(headings: Sequence[str], lines: Iterable[Sequence[str]], columns: Columns, rows: Iterable[Any]) -> None:
    """Checks every cell against its row: as many lines as rows, in the same order."""
    assert list(headings) == list(columns)
    lines, rows = list(lines), list(rows)
    assert len(lines) == len(rows)
    assert rows, "a table of nothing shows nothing"
    wrong = [
        (number, heading, cell, row)
        for number, (line, row) in enumerate(zip(lines, rows, strict=True))
        for (heading, told), cell in zip(columns.items(), line, strict=True)
        if not shows(cell, row, told, heading)
    ]
    assert wrong == []


def check_table(text: str, columns: Columns, rows: Iterable[Any]) -> None:
    """Checks every cell of the printed table with these columns."""
    check(tuple(columns), table(text, *columns), columns, rows)


def amounts(text: str, pattern: str) -> tuple[str, ...]:
    """The amounts, as text, in the only line that matches a pattern with groups."""
    found = [match for line in text.splitlines() if (match := re.fullmatch(pattern, line))]
    assert len(found) == 1, f"{len(found)} lines like {pattern} in:\n{text}"
    return found[0].groups()
