"""Parsing of quantities: every form, by hand."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from iscsitrace.wording.quantities import RATE, SHARE, SIZE, TIME, Quantity, parse_count, parse_endpoint


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (TIME, "8ms", 8_000_000),
        (TIME, "1.5us", 1_500),
        (TIME, " 2 s ", 2_000_000_000),
        (TIME, "0s", 0),
        (TIME, "0.1ns", None),
        (TIME, "8", None),
        (TIME, "-1ms", None),
        (TIME, "8MS", None),
        (SIZE, "64K", 65_536),
        (SIZE, "64KB", 64_000),
        (SIZE, "127.5K", 130_560),
        (SIZE, "512", 512),
        (SIZE, "512B", 512),
        (SIZE, "0.3", None),
        (SIZE, "9223372036854775808", None),
        (RATE, "320Mbit", 320_000_000),
        (RATE, "0Mbit", None),
        (RATE, "320", None),
        (SHARE, "0.1%", 0.001),
        (SHARE, "1/4", 0.25),
        (SHARE, "1", 1.0),
        (SHARE, "101%", None),
        (SHARE, "1/0", None),
    ],
)
def test_a_quantity(kind: Quantity, text: str, value: float | None) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("12", 12), (" 0 ", 0), ("1.0", None), ("+1", None), ("", None), ("\u0661", None), ("1K", None)]
)
def test_a_count(text: str, value: int | None) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [
        ("127.0.0.1", "127.0.0.1", None),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("::1", "::1", None),
        ("[::1]", "::1", None),
        ("[fe80::2]:65535", "fe80::2", 65_535),
        ("127.0.0.1:65536", None, None),
        ("127.0.0.1:", None, None),
        ("127.0.0.1:+1", None, None),
        ("[::1", None, None),
        ("[::1]3260", None, None),
        ("localhost:3260", None, None),
        ("", None, None),
        ("[]:1", None, None),
    ],
)
def test_an_endpoint(text: str, address: str | None, port: int | None) -> None:
    assert parse_endpoint(text) == (None if address is None else (ip_address(address), port))
