"""Which connection stands for the path, its RTT, and how low that may be."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pytest

from iscsitrace.measure import path
from iscsitrace.measure.path import Paths
from tests.support.tables_by_hand import table


def connection(number: int, to_target: int | None, to_initiator: int | None, moved: int = 10) -> dict[str, Any]:
    rtts = {"rtt_to_target_min_ns": to_target, "rtt_to_initiator_min_ns": to_initiator}
    return {"connection": number, "stream_bytes_to_target": moved, "stream_bytes_to_initiator": 1} | rtts


def paths(*rows: dict[str, Any], senders: tuple[dict[str, Any], ...] = (), place: tuple[int, ...] = ()) -> Paths:
    """Of these connections; all of subject 0 unless places are given, and none of subject 1."""
    tables = table("connections", *rows), table("senders", *senders)
    return path.of_each(*tables, np.array(place or [0] * len(rows), dtype=np.int64), 2)


def sender(number: int, *, to_target: bool, median: int | None, count: int | None) -> dict[str, Any]:
    return {"connection": number, "to_target": to_target, "rtt_median_ns": median, "rtt_count": count}


def test_the_busiest_connection_that_shows_both_sides_is_the_path() -> None:
    rows = [connection(0, None, 5, 99), connection(1, 30, 4, 10), connection(2, 40, 6, 20)]
    found = paths(*rows)
    assert found.connection.tolist() == [2, -1]
    assert found.rtts_ns.tolist() == [[40, -1], [6, -1]]
    assert found.whole_ns.tolist() == [46, -1]
    assert paths(*rows, place=(1, 0, -1)).connection.tolist() == [1, 0]
    assert paths(*rows, place=(1, 0, -1)).rtts_ns.tolist() == [[30, -1], [4, 5]]
    assert paths().connection.tolist() == [-1, -1]


def test_the_path_has_the_rtt_that_packets_which_overtook_others_do_not_set() -> None:
    senders = ({"connection": 1, "to_target": True, "rtt_path_ns": 35}, {"connection": 9, "rtt_path_ns": 1})
    assert paths(connection(1, 30, 4), senders=senders).rtts_ns[:, 0].tolist() == [35, 4]


def test_a_path_without_medians_is_certain() -> None:
    found = path.measure([40, 6], [])
    assert found
    assert (found.round_trip_ns, found.round_trip_low_ns, found.delay_ns, found.delay_low_ns) == (46, 46, 23, 23)


def test_each_side_is_as_low_as_its_samples_allow() -> None:
    """The mean beyond the path is the median's excess / ln 2; the least of n exceeds it by up to ln 20 / n means."""
    senders = [sender(0, to_target=True, median=1_100, count=10), sender(0, to_target=False, median=300, count=40)]
    found = path.measure([1_000, 200], senders)
    assert found
    mean = 100 / log(2)
    expected = (1_000 - log(20) / 10 * mean) + (200 - log(20) / 40 * mean)
    assert found.round_trip_low_ns == pytest.approx(expected)
    assert found.delay_low_ns == pytest.approx(expected / 2)


def test_a_side_without_a_median_is_certain_and_without_a_count_is_one_sample() -> None:
    one = path.measure([1_000, 0], [sender(0, to_target=True, median=1_100, count=None)])
    assert one
    assert one.round_trip_low_ns == pytest.approx(1_000 - log(20) * 100 / log(2))
    none = path.measure([1_000, 0], [sender(0, to_target=True, median=None, count=9)])
    assert none
    assert none.round_trip_low_ns == 1_000
    # a median below the least RTT is no excess
    below = path.measure([1_000, 0], [sender(0, to_target=True, median=900, count=1)])
    assert below
    assert below.round_trip_low_ns == 1_000


def test_the_lower_bound_is_not_negative() -> None:
    assert path.low_ns(10, 1_000, 1) == 0
    assert path.low_ns(10, 10, 0) == 10
    assert path.low_ns(100, 110, 0) == path.low_ns(100, 110, 1) == pytest.approx(100 - log(20) * 10 / log(2))


@pytest.mark.parametrize(
    ("rtts_ns", "reason"),
    [
        ([None, 5], "no RTT to the target was measured"),
        ([5, None], "no RTT to the initiator was measured"),
        ([0, 0], "the measured RTT is 0"),
    ],
)
def test_why_a_path_is_unknown(rtts_ns: list[int | None], reason: str) -> None:
    assert path.measure(rtts_ns, []) is None
    assert path.why_unknown(rtts_ns) == reason
    assert path.why_unknown([None, None]) == "no RTT to the target was measured"
    assert path.why_unknown([0, 1]) == ""
    shortest = path.measure([1, 0], [])
    assert shortest
    assert shortest.round_trip_ns == 1
