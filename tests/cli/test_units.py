"""Parsing of quantities in options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.cli import units
from iscsitrace.wording import cells


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("7ns", 7),
        ("1us", 1_000),
        ("10ms", 10_000_000),
        ("12.5s", 12_500_000_000),
        ("0.000000001s", 1),
        (" 5 ms ", 5 * 10**6),
    ],
)
def test_durations(text: str, time_ns: int) -> None:
    assert units.Duration().convert(text, None, None) == time_ns


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("64K", 65_536),
        ("64KB", 64_000),
        ("1M", 1 << 20),
        ("1.5G", 3 << 29),
        ("2GB", 2 * 10**9),
        ("512", 512),
        ("512B", 512),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert units.Size().convert(text, None, None) == size_bytes


@pytest.mark.parametrize(
    "text", ["10", "ms", "10 m", "-1ms", "1e3ms", "0.1ns", "\N{ARABIC-INDIC DIGIT ONE}ms", "", "9" * 30 + "s"]
)
def test_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a time like \"8ms\""):
        units.Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "rate_bps"), [("320Mbit", 320 * 10**6), ("0.5 Gbit", 500 * 10**6), ("64Kbit", 64_000), ("7bit", 7)]
)
def test_rates(text: str, rate_bps: int) -> None:
    assert units.Rate().convert(text, None, None) == rate_bps


@pytest.mark.parametrize("text", ["320", "320M", "0Mbit", "0.0001Kbit", "-1bit"])
def test_no_rate(text: str) -> None:
    with pytest.raises(click.BadParameter, match="320Mbit"):
        units.Rate().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "share"),
    [("0.1%", 0.001), ("0.25", 0.25), ("1/65536", 2.0**-16), ("100%", 1.0), ("0", 0.0), ("3/4", 0.75)],
)
def test_shares(text: str, share: float) -> None:
    assert units.Share().convert(text, None, None) == share


@pytest.mark.parametrize("text", ["101%", "1.1", "1/0", "-0.1", "1/", "%", "5/4", "1e-3"])
def test_no_share(text: str) -> None:
    with pytest.raises(click.BadParameter, match="1/65536"):
        units.Share().convert(text, None, None)


@pytest.mark.parametrize("text", ["64k", "64 KiB", "0.5", "K", "1T"])
def test_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="K, M, G"):
        units.Size().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01T00:00:01", 10**9),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.000000007Z", 7),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
        ("1970-01-01T01:00:10,25+01:00", 10_250_000_000),
        ("1970-01-02", 86_400 * 10**9),
        ("19700102", 86_400 * 10**9),
        ("19700102T000001Z", 86_401 * 10**9),
        ("1795173190.709466809", 1_795_173_190_709_466_809),
        ("100000000", 10**8 * 10**9),
        ("123456789", 123_456_789 * 10**9),
    ],
)
def test_absolute_moments(text: str, time_ns: int) -> None:
    assert units.When().convert(text, None, None) == units.Moment(time_ns, is_relative=False)


@pytest.mark.parametrize(
    ("text", "time_ns"),
    # no capture is so old that its first packet were before March 1973
    [("500ms", 500_000_000), ("4.6", 4_600_000_000), ("0", 0), ("99999999.999999999", 10**17 - 1)],
)
def test_relative_moments(text: str, time_ns: int) -> None:
    assert units.When().convert(text, None, None) == units.Moment(time_ns, is_relative=True)


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "2026-13-01",
        "20261301",
        "12:00",
        "9" * 30,
        # ISO 8601 means a part of a minute and of a day; a fraction is read after seconds only
        "2026-11-20T11:13.5Z",
        "2026-11-20.5",
        "2026-11-20T11:13:10.Z",
        "2026-11-20T11:13:10.1234567890Z",
    ],
)
def test_no_moment(text: str) -> None:
    with pytest.raises(click.BadParameter, match="epoch seconds"):
        units.When().convert(text, None, None)


@given(st.integers(-(2**60), 2**62))
def test_a_printed_date_can_be_read_back(time_ns: int) -> None:
    assert units.When().convert(cells.date(time_ns), None, None).time_ns == time_ns
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert cells.date(time_ns).startswith((epoch + timedelta(seconds=time_ns // 10**9)).strftime("%Y-%m-%dT%H:%M:%S."))


def test_figures_as_text() -> None:
    assert cells.milliseconds(1_234_567) == "1.235"
    assert cells.seconds(1_234_567) == "0.001235"
    assert (cells.size(65_536), cells.size(65_537), cells.size(0), cells.size(3 << 30)) == ("64K", "65537", "0", "3G")
    assert cells.megabytes(1_500_000) == "1.500"
    nulls = (cells.milliseconds, cells.seconds, cells.size, cells.megabytes, cells.percent, cells.date)
    assert {show(None) for show in nulls} == {"-"}
