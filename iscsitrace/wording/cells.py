"""Values as the cells of a table: no unit, which stands in the heading, ``-`` for null, and harmless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from iscsitrace.wording import amounts
from iscsitrace.wording.quantities import SIZES, TIMES

NOTHING: Final = "-"
TEXT_LIMIT: Final = 160
"""Characters of a text from a capture that are shown where there is little room."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def printable(text: str) -> str:
    r"""Text in which a name of a stranger is harmless: ``\x1b`` for ESC.

    Characters that control a terminal, turn text around, end a line or are not seen become their codes (Unicode's
    categories Other and Separator, but for the blank). All that prints text of captures, peers and files uses this.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def text(value: object) -> str:
    """Any value: yes and no for booleans; text is harmless, see ``printable``."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def short(value: object) -> str:
    """The same, cut where it is long: between words, or within one that is very long."""
    shown = text(value if value is None or isinstance(value, bool) else str(value)[: 2 * TEXT_LIMIT])
    if len(shown) <= TEXT_LIMIT:
        return shown
    begin = shown[: TEXT_LIMIT - 3]
    end = begin.rfind(" ", TEXT_LIMIT // 2)
    return f"{begin[:end]} ..." if end > 0 else f"{begin}..."


def milliseconds(time_ns: float | None) -> str:
    """A time in ms with three decimals."""
    return NOTHING if time_ns is None else f"{time_ns / TIMES['ms']:.3f}"


def seconds(time_ns: float | None) -> str:
    """A time in s with six decimals."""
    return NOTHING if time_ns is None else f"{time_ns / TIMES['s']:.6f}"


def size(amount: int | None) -> str:
    """Bytes with a unit of 1024 that divides them (``64K``), else the plain number."""
    if amount is None:
        return NOTHING
    for unit in ("G", "M", "K"):
        if amount and amount % SIZES[unit] == 0:
            return f"{amount // SIZES[unit]}{unit}"
    return str(amount)


def megabytes(amount: float | None) -> str:
    """Bytes in MB (1000 x 1000) with three decimals."""
    return NOTHING if amount is None else f"{amount / SIZES['MB']:.3f}"


def percent(share: float | None) -> str:
    """A share in per cent, by the rule of all percentages."""
    return NOTHING if share is None else amounts.percentage(share)


def count(amount: int | None) -> str:
    """A number with its thousands apart."""
    return NOTHING if amount is None else f"{amount:,}"


def numbers(found: Sequence[int | str], limit: int) -> str:
    """``0 1 2``; beyond the limit the others are counted."""
    shown = " ".join(map(str, found[:limit]))
    return f"{shown} and {len(found) - limit:,} more" if len(found) > limit else shown


def date(time_ns: int | None) -> str:
    """Absolute nanoseconds as ISO 8601 in UTC with all nine decimals."""
    if time_ns is None:
        return NOTHING
    whole, part = divmod(time_ns, TIMES["s"])
    return f"{(_EPOCH + timedelta(seconds=whole)).strftime('%Y-%m-%dT%H:%M:%S')}.{part:09d}Z"


def clock(time_ns: int) -> str:
    """Absolute nanoseconds as date and time in UTC, to the millisecond."""
    return f"{date(time_ns)[:-7].replace('T', ' ')} UTC"


def endpoint(row: Mapping[str, Any], side: str) -> str:
    """Address and port of ``initiator`` or ``target`` in a row of connections."""
    address = text(row[f"{side}_address"])
    return f"{f'[{address}]' if ':' in address else address}:{row[f'{side}_port']}"
