"""Values as the cells and sentences of a report have them: short, with their units, and harmless."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from iscsitrace.wording import amounts as wording

NOTHING: Final = "-"
TEXT_LIMIT: Final = 160
"""Characters of a text from a capture that are shown."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_NS: Final = 1_000_000_000


def text(value: object) -> str:
    """``-`` for null, yes and no for booleans; control characters and what turns text around escaped, long text cut."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    shown = str(value)
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown[: 2 * TEXT_LIMIT])
    return shown if len(shown) <= TEXT_LIMIT else f"{shown[: TEXT_LIMIT - 3]}..."


def milliseconds(time_ns: float | None) -> str:
    """A time in ms with three digits that count, and no unit: it stands in the heading."""
    if time_ns is None:
        return NOTHING
    amount = time_ns / 1_000_000
    return f"{amount:,.0f}" if abs(amount) >= 1000 else f"{amount:.1f}" if abs(amount) >= 100 else f"{amount:.2f}"


def seconds(time_ns: float | None) -> str:
    """A time in s with six decimals, and no unit."""
    return NOTHING if time_ns is None else f"{time_ns / _SECOND_NS:.6f}"


def time(time_ns: float | None) -> str:
    """A time with its unit."""
    return NOTHING if time_ns is None else wording.time(time_ns)


def size(amount: float | None) -> str:
    """Bytes with a unit of 1024 that divides them."""
    return NOTHING if amount is None else wording.size(amount)


def megabytes(amount: float | None) -> str:
    """Bytes in MB of 1000 x 1000, and no unit."""
    return NOTHING if amount is None else f"{amount / 1e6:,.1f}"


def rate(bytes_per_s: float | None) -> str:
    """Bytes a second with their unit."""
    return NOTHING if bytes_per_s is None else wording.rate(bytes_per_s)


def percent(share: float | None) -> str:
    """A share with its sign; rounded down beyond 99 %, so that 100 % says that nothing is missing."""
    if share is None:
        return NOTHING
    return f"{int(share * 10_000) / 100:g} %" if 0.99 < share < 1 else f"{wording.percent(share)}"


def factor(low: float, value: float, high: float) -> str:
    """How many times as much: ``5.1 times (4.8 to 5.4)``."""
    interval = "" if f"{low:.2g}" == f"{high:.2g}" else f" ({low:.2g} to {high:.2g})"
    return f"{value:.2g} times{interval}"


def count(amount: int | None) -> str:
    """A number with its thousands apart."""
    return NOTHING if amount is None else f"{amount:,}"


def date(time_ns: int | None) -> str:
    """Absolute nanoseconds as ISO 8601 in UTC, to the millisecond."""
    if time_ns is None:
        return NOTHING
    whole, part = divmod(time_ns, _SECOND_NS)
    return f"{(_EPOCH + timedelta(seconds=whole)).strftime('%Y-%m-%d %H:%M:%S')}.{part // 1_000_000:03d} UTC"


def endpoint(row: dict[str, Any], side: str) -> str:
    """Address and port of ``initiator`` or ``target`` in a row of connections."""
    address = text(row[f"{side}_address"])
    return f"{f'[{address}]' if ':' in address else address}:{row[f'{side}_port']}"
