"""Windows as bounds: averages under losses at their ends, and what one window per RTT carries."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from iscsitrace.model import bounds
from iscsitrace.model.bounds import loss_window_segments
from iscsitrace.model.setting import Setting
from iscsitrace.model.transfer import byte_ns, line_ns, open_way, usable_bytes, way_of

MS = 1_000_000
READ = Setting("read", 65_536, 4.0 * MS)


def test_without_losses_the_window_is_the_largest() -> None:
    assert [loss_window_segments(loss, 0.1, "reno", 40) for loss in (0.0, -1.0)] == [40, 40]
    assert bounds.loss_window_bytes(READ) == inf
    # the full segments of it, an even number
    assert bounds.loss_window_bytes(replace(READ, window_bytes=9_999)) == pytest.approx(6 * 1_448)


def test_rare_losses_are_scaled_by_the_square_root() -> None:
    """A ten thousandth of the rate, a hundred times the window."""
    for most in (inf, 3_000.0):
        rare, known = (
            loss_window_segments(loss, 0.0, "reno", limit) for loss, limit in ((1e-12, 100 * most), (1e-8, most))
        )
        assert rare == pytest.approx(100 * known, rel=1e-9)


def test_more_than_half_is_as_bad_as_half() -> None:
    assert loss_window_segments(0.9, 0.0, "reno") == loss_window_segments(0.5, 0.0, "reno")
    assert loss_window_segments(0.49, 0.0, "reno") > loss_window_segments(0.5, 0.0, "reno")


def test_cubic_is_the_larger_of_both_of_its_averages() -> None:
    """RFC 9438: 1.054 (RTT / p)^0.75 where that is more than as Reno would, and up to the window."""
    assert loss_window_segments(1e-4, 1.0, "cubic") == pytest.approx((0.4 * 3.7 / 1.2) ** 0.25 * 1e3)
    assert loss_window_segments(1e-4, 1.0, "cubic", 700) == 700
    # Linux follows Reno's window an RTT later, by whole segments: half of one on average
    like_reno = bounds._average(1e-4, 3 * 0.3 / 1.7, 0.7, inf)
    assert loss_window_segments(1e-4, 0.0, "cubic") == pytest.approx(like_reno - 0.5 - 3 * 0.3 / 1.7)
    assert loss_window_segments(0.3, 0.0, "cubic") == 1
    assert loss_window_segments(0.3, 0.0, "cubic", 0.9) == 0.9


def test_the_window_under_losses_is_of_the_rtt_in_seconds() -> None:
    far = replace(READ, delay_ns=500.0 * MS, loss=1e-4, segment_bytes=1_000)
    assert bounds.loss_window_bytes(far) == pytest.approx(1_000 * loss_window_segments(1e-4, 1.0, "cubic"))
    assert bounds.loss_window_bytes(replace(far, window_bytes=500_000)) == pytest.approx(500_000)


def test_a_window_per_rtt() -> None:
    """Ten segments in 8 ms, and the time of two on the line."""
    narrow = replace(READ, window_bytes=10 * 1_448)
    assert bounds.window_bytes_per_s(narrow) == pytest.approx(14_480 / 0.008, rel=1e-12)
    slow = replace(narrow, c_bytes_per_s=1_448_000)
    assert bounds.window_bytes_per_s(slow) == pytest.approx(14_480 / 0.010, rel=1e-12)
    assert bounds.window_bytes_per_s(narrow, 4 * 1_448) == pytest.approx(4 * 1_448 / 0.008, rel=1e-12)
    assert bounds.window_bytes_per_s(READ) == bounds.window_bytes_per_s(replace(narrow, delay_ns=0.0)) == inf


def test_the_way_of_a_setting() -> None:
    setting = replace(READ, c_bytes_per_s=1_448_000, window_bytes=7 * 1_448, start_window_bytes=3_000)
    way = way_of(setting)
    assert (way.round_trip_ns, way.acknowledged_ns) == (8 * MS, pytest.approx(10 * MS))
    assert (way.window_bytes, way.start_bytes) == (6 * 1_448, 3_000)
    longer = way_of(setting, 5 * 1_448, k_factor=1.5)
    assert (longer.round_trip_ns, longer.acknowledged_ns) == (12 * MS, pytest.approx(10 * MS))
    # a window that varies is no number of segments
    assert longer.window_bytes == 5 * 1_448
    assert way_of(setting, 6.5 * 1_448).window_bytes == 6 * 1_448
    free = way_of(READ)
    assert (free.acknowledged_ns, free.window_bytes, free.start_bytes) == (8 * MS, inf, inf)
    assert [way.round_trip_ns for way in (open_way(READ), open_way(READ, 0.5))] == [8 * MS, 4 * MS]
    assert (open_way(READ).acknowledged_ns, open_way(READ).window_bytes) == (0, inf)


@pytest.mark.parametrize(
    ("window_bytes", "segments"), [(1, 1), (100, 1), (199, 1), (200, 2), (299, 2), (300, 2), (400, 4), (500, 4)]
)
def test_a_window_is_used_in_pairs_of_full_segments(window_bytes: int, segments: int) -> None:
    assert usable_bytes(window_bytes, 100) == 100 * segments


def test_time_on_the_line() -> None:
    assert (byte_ns(READ), byte_ns(replace(READ, c_bytes_per_s=5e8))) == (0, 2)
    # 65536 bytes and eight headers of 48, at 2 ns
    assert line_ns(replace(READ, c_bytes_per_s=5e8, data_pdu_bytes=8_192)) == 2 * (65_536 + 8 * 48)
    # a write of 8192 immediate bytes, and of the others in one burst of seven PDUs
    write = replace(READ, operation="write", c_bytes_per_s=5e8, data_pdu_bytes=8_192)
    assert line_ns(write) == 2 * (65_536 + 8 * 48)
