"""Which connection stands for the path, its RTT, and how low that may be."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from iscsitrace.analysis.session import path


def connection(number: int, to_target: int | None, to_initiator: int | None, moved: int = 10) -> dict[str, Any]:
    rtts = {"rtt_to_target_min_ns": to_target, "rtt_to_initiator_min_ns": to_initiator}
    return {"connection": number, "stream_bytes_to_target": moved, "stream_bytes_to_initiator": 1} | rtts


def sender(number: int, *, to_target: bool, median: int | None, count: int | None) -> dict[str, Any]:
    return {"connection": number, "to_target": to_target, "rtt_median_ns": median, "rtt_count": count}


def test_the_busiest_connection_that_shows_both_sides_is_the_path() -> None:
    rows = [connection(0, None, 5, 99), connection(1, 30, 4, 10), connection(2, 40, 6, 20)]
    assert path.busiest(rows) is rows[2]
    found = path.measure(rows, [])
    assert found
    assert (found.round_trip_ns, found.round_trip_low_ns, found.delay_ns, found.delay_low_ns) == (46, 46, 23, 23)
    assert path.busiest([]) is None


def test_each_side_is_as_low_as_its_samples_allow() -> None:
    """The mean beyond the path is the median's excess / ln 2; the least of n exceeds it by up to ln 20 / n means."""
    senders = [
        sender(0, to_target=True, median=1_100, count=10),
        sender(0, to_target=False, median=300, count=40),
        sender(1, to_target=True, median=9_000, count=1),
    ]
    # those of other connections do not count
    senders = [each | {"connection": number} for each, number in zip(senders, (1, 1, 2), strict=True)]
    senders.append(sender(0, to_target=True, median=9_000, count=1))
    found = path.measure([connection(1, 1_000, 200)], senders)
    assert found
    mean = 100 / log(2)
    expected = (1_000 - log(20) / 10 * mean) + (200 - log(20) / 40 * mean)
    assert found.round_trip_low_ns == pytest.approx(expected)
    assert found.delay_low_ns == pytest.approx(expected / 2)


def test_a_side_without_a_median_is_certain_and_without_a_count_is_one_sample() -> None:
    one = path.measure([connection(0, 1_000, 0)], [sender(0, to_target=True, median=1_100, count=None)])
    assert one
    assert one.round_trip_low_ns == pytest.approx(1_000 - log(20) * 100 / log(2))
    none = path.measure([connection(0, 1_000, 0)], [sender(0, to_target=True, median=None, count=9)])
    assert none
    assert none.round_trip_low_ns == 1_000
    # a median below the least RTT is no excess
    below = path.measure([connection(0, 1_000, 0)], [sender(0, to_target=True, median=900, count=1)])
    assert below
    assert below.round_trip_low_ns == 1_000


def test_the_lower_bound_is_not_negative() -> None:
    assert path.low_ns(10, 1_000, 1) == 0
    assert path.low_ns(10, 10, 0) == 10
    assert path.low_ns(100, 110, 0) == path.low_ns(100, 110, 1) == pytest.approx(100 - log(20) * 10 / log(2))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (connection(0, None, 5), "no RTT to the target was measured"),
        (connection(0, 5, None), "no RTT to the initiator was measured"),
        (connection(0, 0, 0), "the measured RTT is 0"),
    ],
)
def test_why_a_path_is_unknown(row: dict[str, Any], reason: str) -> None:
    assert path.measure([row], []) is None
    assert path.why_unknown([row]) == reason
    assert path.why_unknown([]) == "no RTT to the target was measured"
    shortest = path.measure([connection(0, 1, 0)], [])
    assert shortest
    assert shortest.round_trip_ns == 1
