"""Quantities as people write them (``10ms``, ``64K``, ``2026-11-20T11:13:10Z``) to integers: types of options.

Arithmetic is decimal and exact: nanoseconds and bytes are integers, and a time of day keeps its last digit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

import click

from iscsitrace.wording.quantities import PACE, RATE, SHARE, SIZE, TIME, TIMES, parse_quantity

# group 1: the fraction with its mark, after seconds only (datetime keeps but six digits of it)
_ISO_DATE = re.compile(
    r"\d{4}-?\d\d-?\d\d(?:[T ]\d\d(?::?\d\d(?::?\d\d([.,]\d{1,9})?)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
_NUMBER = re.compile(r"\d+(\.\d{1,9})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_EPOCH_S = 10**8
"""Of a bare number: a smaller one would be a date before March 1973, and is seconds after the first packet."""


Quantity = click.ParamType[Any]
"""What the kinds of values derive from."""


class WrittenKind(Protocol):
    """A kind of value that is written as a text."""

    @property
    def name(self) -> str:
        """In capitals, as the help shows it."""

    @property
    def needed(self) -> str:
        """What to write."""

    @property
    def parse(self) -> Callable[[str], Any]:
        """The value of a text; None for anything of another kind."""


class Typed(Quantity):
    """An option of a kind of value."""

    def __init__(self, kind: WrittenKind) -> None:
        self.name = kind.name
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value; fails with a line that says what to write."""
        if not isinstance(value, str):
            return value
        found = self._kind.parse(value)
        if found is None:
            self.fail(f"{value!r} is not {self._kind.needed}", param, ctx)
        return found


class Duration(Typed):
    """A time, to nanoseconds."""

    def __init__(self) -> None:
        super().__init__(TIME)


class Size(Typed):
    """A size, to bytes."""

    def __init__(self) -> None:
        super().__init__(SIZE)


class Rate(Typed):
    """A rate, to bits a second."""

    def __init__(self) -> None:
        super().__init__(RATE)


class ByteRate(Typed):
    """A rate of data, to bytes a second."""

    def __init__(self) -> None:
        super().__init__(PACE)


class Share(Typed):
    """A probability, to a float from 0 to 1."""

    def __init__(self) -> None:
        super().__init__(SHARE)


@dataclass(frozen=True)
class Moment:
    """A place in the capture's time: nanoseconds since 1970, or after the first packet."""

    time_ns: int
    is_relative: bool


class When(Quantity):
    """A moment: ``12.5`` s after the first packet, or absolute as ISO 8601 (UTC without a zone) or epoch seconds."""

    name = "WHEN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """The moment; fails with a line that says how to write one."""
        if isinstance(value, Moment):
            return value
        text = value.strip()
        relative = None if _is_date(text) else parse_quantity(text, TIMES | {"": TIMES["s"]})
        if relative is not None:
            return Moment(relative, is_relative=True)
        try:
            return Moment(_absolute_ns(text), is_relative=False)
        except (ValueError, InvalidOperation, OverflowError):
            self.fail(
                f"{value!r} is not a moment like 12.5s (after the first packet), 2026-11-20T11:13:10Z or epoch seconds",
                param,
                ctx,
            )


def _is_date(text: str) -> bool:
    is_epoch = _NUMBER.fullmatch(text) is not None and Decimal(text) >= _LEAST_EPOCH_S
    return is_epoch or _ISO_DATE.fullmatch(text) is not None


def _absolute_ns(text: str) -> int:
    if match := _ISO_DATE.fullmatch(text):
        fraction = match[1] or ""
        whole = datetime.fromisoformat(text.replace(fraction, ""))
        whole = whole.replace(tzinfo=UTC) if whole.tzinfo is None else whole
        found = (whole - _EPOCH) // timedelta(seconds=1) * TIMES["s"]
        found += int(fraction[1:].ljust(9, "0"))
    elif _NUMBER.fullmatch(text):
        found = int(Decimal(text) * TIMES["s"])
    else:
        raise ValueError(text)
    if not -(1 << 63) <= found < 1 << 63:
        raise OverflowError(text)
    return found
