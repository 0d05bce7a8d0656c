"""The short forms of the live view's values: both sides of every change of unit or digits."""

from __future__ import annotations

import pytest

from iscsitrace.watch.columns import clock, count, milliseconds, rate, size

K, M, G = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "-"), (0, "0"), (1023, "1023"), (K, "1K"), (K + K // 2, "1.5K"), (99.5 * K, "99.5K"),
        (100 * K + 400, "100K"), (M - 1, "1024K"), (M, "1M"), (1.5 * M, "1.5M"), (G - 1, "1024M"), (G, "1G"),
        (2.5 * G, "2.5G"),
    ],
)  # fmt: skip
def test_sizes_have_a_decimal_below_a_hundred_unless_it_is_zero(amount: float | None, shown: str) -> None:
    assert size(amount) == shown


@pytest.mark.parametrize(
    ("time_ns", "shown"),
    [
        (None, "-"), (0, "0.000"), (9_999_000, "9.999"), (10_000_000, "10.0"), (9_999_949_000, "9999.9"),
        (10_000_000_000, "10000"),
    ],
)  # fmt: skip
def test_milliseconds_lose_decimals_as_they_grow(time_ns: int | None, shown: str) -> None:
    assert milliseconds(time_ns) == shown


def test_rates_and_counts_lose_their_decimal() -> None:
    assert [rate(amount) for amount in (0, 1_250_000, 999_900_000, 1_000_000_000)] == ["0.0", "1.2", "999.9", "1000"]
    assert [count(amount) for amount in (0, 99.9, 100, 101.4)] == ["0.0", "99.9", "100", "101"]


def test_the_time_of_day_begins_anew_at_midnight() -> None:
    times_s = (0, 59, 3_599, 3_600, 86_399, 86_400, 86_400 + 3_661)
    assert [clock(time_s * 10**9 + 999_999_999) for time_s in times_s] == [
        "00:00:00Z", "00:00:59Z", "00:59:59Z", "01:00:00Z", "23:59:59Z", "00:00:00Z", "01:01:01Z",
    ]  # fmt: skip
