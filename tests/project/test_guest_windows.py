"""The settings and the truth of the congestion window in guests."""

from __future__ import annotations

from math import nan

import pytest

from bench import guest_windows
from bench.guest_windows import Row
from bench.senders import Errors


def test_settings_follow_from_the_seed() -> None:
    drawn = [guest_windows.options(7, number) for number in range(60)]
    assert drawn == [guest_windows.options(7, number) for number in range(60)]
    assert guest_windows.options(8, 0) != drawn[0]
    words = {word for each in drawn for word in each}
    assert {"reno", "cubic", "bbr", "read", "write", "--loss", "header-digest=crc32c", "--sessions"} <= words
    assert "receive-buffer=65536" in words


def test_the_window_of_tcp_probe_is_that_since_the_row_before_on_the_clock_of_the_tap() -> None:
    probe = {
        "time_ns": [1_000, 2_000, 3_000, 4_000],
        "src": ["10.0.0.1:900", "10.0.0.1:901", "10.0.0.1:900", "10.0.0.1:900"],
        "snd_cwnd": [10, 77, 12, 14],
    }
    clocks = {"initiator": [500, 700], "target": [100, 100]}
    truth = {
        "guests": {
            side: {"events": {"tcp_probe": probe if side == "initiator" else {}}, "clock": {"offset_ns": offsets}}
            for side, offsets in clocks.items()
        },
        "initiator_ends": [{"initiator_port": 900, "snd_mss": 1448}],
        "target_ends": [[]],
    }
    known = guest_windows.known_of(truth, "initiator", "target", 900)
    assert known is not None
    assert known.time_ns.tolist() == [500, 2_500]
    assert known.cwnd_bytes.tolist() == [12 * 1448, 14 * 1448]
    assert guest_windows.known_of(truth, "initiator", "target", 901) is None
    assert guest_windows.known_of(truth, "target", "target", 900) is None


@pytest.mark.parametrize(
    ("median", "p95", "is_good"), [(0.05, 0.15, True), (0.051, 0.1, False), (0.01, 0.151, False), (nan, nan, None)]
)
def test_a_valid_estimate_holds_both_limits(median: float, p95: float, is_good: bool | None) -> None:
    assert Row("1-00", "target", "initiator", 900, Errors(median, p95, 0.5)).is_good is is_good
