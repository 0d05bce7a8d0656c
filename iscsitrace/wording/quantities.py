"""Quantities as people write them (``10ms``, ``64K``, ``320Mbit``, ``0.1%``) to numbers; never back to text.

Arithmetic is decimal and exact: nanoseconds, bytes and bits a second are integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

TIMES = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
SIZES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
PACES = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
RATES = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_SHARE = re.compile(r"(\d+(?:\.\d+)?)(%|/(\d+))?", re.ASCII)


def parse_quantity(text: str, units: dict[str, int]) -> int | None:
    """A number and one of ``units`` to an integer; None when it is not that, or not a whole number of the least."""
    match = _QUANTITY.fullmatch(text.strip())
    if not match or match[2] not in units:
        return None
    amount = Decimal(match[1]) * units[match[2]]
    return int(amount) if amount == int(amount) and amount < 1 << 63 else None


def parse_share(text: str) -> float | None:
    """``0.1%``, ``0.001`` or ``1/65536`` to a number from 0 to 1; None when it is not that."""
    match = _SHARE.fullmatch(text.strip())
    divisor = Decimal(1 if not match or not match[2] else 100 if match[2] == "%" else match[3])
    if not match or not divisor:
        return None
    found = Decimal(match[1]) / divisor
    return float(found) if found <= 1 else None


def parse_pace(text: str) -> float | None:
    """``8MB/s``, or ``64Mbit`` a second, to bytes a second; None when it is neither."""
    bits = parse_quantity(text, RATES)
    if bits is not None:
        return bits / 8
    number, slash, per = text.strip().partition("/")
    return parse_quantity(number, PACES) if slash and per == "s" else None


def parse_count(text: str) -> int | None:
    """``12`` to a whole number; None when it has a sign, a unit or a fraction."""
    text = text.strip()
    return parse_quantity(text, {"": 1}) if text.isdecimal() else None


def parse_endpoint(text: str) -> tuple[IPv4Address | IPv6Address, int | None] | None:
    """``ADDRESS[:PORT]``, with an IPv6 address in brackets before a port; None when it is not that."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        is_open = "]" not in text
    else:
        # one colon is before a port, several are of an IPv6 address
        host, colon, port = text.partition(":") if text.count(":") == 1 else (text, "", "")
        rest, is_open = f"{colon}{port}", False
    number = parse_count(rest[1:]) if rest else None
    if is_open or (rest and (not rest.startswith(":") or number is None or number >= 1 << 16)):
        return None
    try:
        return ip_address(host), number
    except ValueError:
        return None


@dataclass(frozen=True)
class Quantity:
    """A kind of quantity, the same wherever it is written: in an option, a rule, a definition of an experiment."""

    name: str
    """In capitals, as the help of an option shows it."""
    needed: str
    """What to write, for error messages: ``'soon' is not a time like "8ms"``."""
    parse: Callable[[str], Any]
    """The number; None when the text is not this kind of quantity."""


TIME: Final = Quantity("TIME", 'a time like "8ms" (ns, us, ms, s)', partial(parse_quantity, units=TIMES))
SIZE: Final = Quantity(
    "SIZE",
    'a size like "128K" (K, M, G are powers of 1024; KB, MB, GB of 1000)',
    partial(parse_quantity, units=SIZES),
)
RATE: Final = Quantity(
    "RATE",
    'a rate like "320Mbit" (bit, Kbit, Mbit, Gbit a second)',
    lambda text: parse_quantity(text, RATES) or None,
)
PACE: Final = Quantity(
    "RATE",
    'a rate of data like "8MB/s" (KB/s, MB/s, GB/s) or "64Mbit"',
    lambda text: parse_pace(text) or None,
)
SHARE: Final = Quantity("SHARE", 'a share like "0.01%", 0.0001 or "1/65536"', parse_share)
