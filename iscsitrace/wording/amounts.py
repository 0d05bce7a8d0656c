"""Amounts as a sentence says them."""

from __future__ import annotations

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def size(amount: float) -> str:
    """``128 KiB``, ``127.5 KiB``; ``500000 bytes`` where no unit gives a short number."""
    for unit, name in _SIZES:
        if amount >= unit and amount * 8 % unit == 0:
            return f"{amount / unit:.3f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{amount:.0f} bytes"


def about(amount: float) -> str:
    """A size that is not exact: ``312 KiB``."""
    for unit, name in _SIZES:
        if amount >= 10 * unit:
            return f"{amount / unit:.0f} {name}"
    return f"{amount:.0f} bytes"


def time(amount_ns: float) -> str:
    """``8.0 ms``, ``2.1 s``, ``150 µs``."""
    for unit, name in _TIMES:
        if amount_ns >= unit:
            value = amount_ns / unit
            return f"{value:.1f} {name}" if name != "µs" else f"{value:.0f} {name}"
    return f"{amount_ns:.0f} ns"


def percent(share: float) -> str:
    """``78 %``; ``0.4 %`` below one."""
    return f"{share * 100:.0f} %" if share >= 0.01 else f"{share * 100:.1f} %"


def rate(bytes_per_s: float) -> str:
    """``40.0 MB/s``."""
    return f"{bytes_per_s / 1e6:.1f} MB/s"


def count(amount: int, word: str, plural: str | None = None) -> str:
    """``1 task``, ``3 tasks``, ``2 losses``."""
    return f"{amount} {word if amount == 1 else plural or word + 's'}"
