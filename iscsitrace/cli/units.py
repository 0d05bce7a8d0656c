"""Quantities as people write them (``10ms``, ``64K``, ``2026-11-20T11:13:10Z``) to integers: types of options.

Arithmetic is decimal and exact: nanoseconds and bytes are integers, and a time of day keeps its last digit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.wording.quantities import RATES, SIZES, TIMES, parse_quantity, parse_share

# group 1: the fraction with its mark, after seconds only (datetime keeps but six digits of it)
_ISO_DATE = re.compile(
    r"\d{4}-?\d\d-?\d\d(?:[T ]\d\d(?::?\d\d(?::?\d\d([.,]\d{1,9})?)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# click.ParamType is generic from click 8.3 on, and not before
if TYPE_CHECKING:
    Quantity = click.ParamType[Any]
else:
    Quantity = click.ParamType


class Duration(Quantity):
    """A time with its unit, to nanoseconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The quantity; fails with a line that says how to write one."""
        if isinstance(value, int):
            return value
        found = parse_quantity(value, TIMES)
        if found is None:
            self.fail(f"{value!r} is no time; write a number and ns, us, ms or s, like 10ms", param, ctx)
        return found


class Size(Quantity):
    """A size, to bytes: K, M, G are powers of 1024, KB, MB, GB of 1000."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The quantity; fails with a line that says how to write one."""
        if isinstance(value, int):
            return value
        found = parse_quantity(value, SIZES)
        if found is None:
            self.fail(f"{value!r} is no size; write a number and K, M, G (1024) or KB, MB, GB (1000)", param, ctx)
        return found


class Rate(Quantity):
    """A rate, to bits a second: Kbit, Mbit, Gbit are powers of 1000."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The quantity; fails with a line that says how to write one."""
        if isinstance(value, int):
            return value
        found = parse_quantity(value, RATES)
        if not found:
            self.fail(f"{value!r} is no rate; write a number and bit, Kbit, Mbit or Gbit, like 320Mbit", param, ctx)
        return found


class Share(Quantity):
    """A probability: ``0.1%``, ``0.001`` or ``1/65536``, to a float from 0 to 1."""

    name = "SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share; fails with a line that says how to write one."""
        if isinstance(value, float):
            return value
        found = parse_share(value)
        if found is None:
            self.fail(f"{value!r} is no share; write 0.1%, 0.001 or 1/65536", param, ctx)
        return found


@dataclass(frozen=True)
class Moment:
    """A place in the capture's time: nanoseconds since 1970, or after the first packet."""

    time_ns: int
    is_relative: bool


class When(Quantity):
    """A moment: ``12.5s`` after the first packet, or absolute as ISO 8601 (UTC without a zone) or epoch seconds."""

    name = "WHEN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """The moment; fails with a line that says how to write one."""
        if isinstance(value, Moment):
            return value
        relative = parse_quantity(value, TIMES)
        if relative is not None:
            return Moment(relative, is_relative=True)
        try:
            return Moment(_absolute_ns(value.strip()), is_relative=False)
        except (ValueError, InvalidOperation, OverflowError):
            self.fail(f"{value!r} is no moment; write 12.5s, 2026-11-20T11:13:10Z or epoch seconds", param, ctx)


def _absolute_ns(text: str) -> int:
    if match := _ISO_DATE.fullmatch(text):
        fraction = match[1] or ""
        whole = datetime.fromisoformat(text.replace(fraction, ""))
        whole = whole.replace(tzinfo=UTC) if whole.tzinfo is None else whole
        found = (whole - _EPOCH) // timedelta(seconds=1) * TIMES["s"]
        found += int(fraction[1:].ljust(9, "0"))
    elif re.fullmatch(r"\d+(\.\d{1,9})?", text, re.ASCII):
        found = int(Decimal(text) * TIMES["s"])
    else:
        raise ValueError(text)
    if not -(1 << 63) <= found < 1 << 63:
        raise OverflowError(text)
    return found
