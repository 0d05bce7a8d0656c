"""Amounts with their units, as a sentence has them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def size(amount: float) -> str:
    """``128 KiB``, ``127.5 KiB``; ``500,000 bytes`` where no unit gives a short number."""
    for unit, name in _SIZES:
        if amount >= unit and amount * 8 % unit == 0:
            return f"{amount / unit:.3f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{amount:,.0f} bytes"


def about(amount: float) -> str:
    """A size that is not exact: ``312 KiB``."""
    for unit, name in _SIZES:
        if amount >= 10 * unit:
            return f"{amount / unit:.0f} {name}"
    return f"{amount:,.0f} bytes"


def time(amount_ns: float) -> str:
    """``8.0 ms``, ``2.1 s``, ``150 µs``: how long something took; nothing, where the clock ran backwards meanwhile."""
    for unit, name in _TIMES:
        if amount_ns >= unit:
            value = amount_ns / unit
            return f"{value:.1f} {name}" if name != "µs" else f"{value:.0f} {name}"
    return f"{max(amount_ns, 0):.0f} ns"


def seconds(amount_ns: float) -> str:
    """``4.80 s``: an instant on the clock of a capture."""
    return f"{amount_ns / 1e9:.2f} s"


def percentage(share: float) -> str:
    """A share from 0 to 1 in per cent, without the sign: ``78``, ``0.43``, ``99.97``. The one rule for all of them.

    Whole numbers from 1 to 99. Below and above, two decimals rounded towards the middle: 0 says that there is nothing,
    100 that nothing is missing.
    """
    percent = Decimal(repr(float(share))) * 100
    if 1 <= percent <= 99 or percent <= 0 or percent >= 100:
        return f"{percent:.0f}"
    rounding = ROUND_CEILING if percent < 1 else ROUND_FLOOR
    found = percent.quantize(Decimal("0.01"), rounding)
    return f"{found.normalize():f}"


def percent(share: float) -> str:
    """``78 %``, ``0.43 %``: see :func:`percentage`."""
    return f"{percentage(share)} %"


def rate(bytes_per_s: float) -> str:
    """``40.0 MB/s``."""
    return f"{bytes_per_s / 1e6:.1f} MB/s"


def count(amount: int, word: str, plural: str | None = None) -> str:
    """``1 command``, ``3 commands``, ``2 losses``, ``1,234 packets``."""
    return f"{amount:,} {word if amount == 1 else plural or word + 's'}"


def times(amount: int) -> str:
    """``once``, ``2 times``, ``1,234 times``."""
    return "once" if amount == 1 else f"{amount:,} times"


def times_since(amount: int, first: str) -> str:
    """``once at 0.05 s``, ``3 times, first at 0.05 s``; ``3 times`` where ``first`` is empty: not known."""
    return times(amount) + (", first" if first and amount > 1 else "") + (f" at {first}" if first else "")


def ordinal(number: int) -> str:
    """``1st``, ``22nd``, ``113th``."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 // 10 != 1 else "th"
    return f"{number:,}{ending}"


def part_of(known: int, total: int, noun: str, others: str) -> str:
    """``146 of 38,293 reads: the others have no status in the capture``; nothing where it is all of them."""
    return f"{known:,} of {total:,} {noun}: the others {others} in the capture" if known < total else ""


def seconds_per_gigabyte(processor_time: Mapping[str, int] | None, byte_count: int) -> float | None:
    """User and system time per 10^9 bytes, from nanoseconds; None if the time is unknown or nothing was moved."""
    # nanoseconds per byte are seconds per 10^9 bytes
    return None if processor_time is None or not byte_count else sum(processor_time.values()) / byte_count
