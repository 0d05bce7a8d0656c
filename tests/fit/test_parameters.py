"""The parameters of a fit, point by point, and the arithmetic of their intervals: by hand."""

from __future__ import annotations

from dataclasses import replace
from math import e, inf, sqrt
from typing import Any

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.fit.points import Fit, Point, Seen, fitted_from_document
from iscsitrace.fit.regression import _of_regression, _pooled, _rate, _scaled, fit
from iscsitrace.measure.line import Line
from iscsitrace.model.setting import Setting, Solicitation
from iscsitrace.model.uncertainty import Estimate
from tests.support.tables_by_hand import MS

exact = Estimate.exact
BLOCK = 65_536
READ = Setting("read", BLOCK, 4.0 * MS)


def about(value: float, half: float) -> Estimate:
    return Estimate(value, value - half, value + half, "packets")


def point(period_ms: float = 10.0, *, transfer_ms: float = 1.0, seen: Any = None, **values: Any) -> Point:
    """A read of 64 KiB: 8 ms of RTT, 1 ms on the line, 1 ms of service."""
    seen = seen or Seen("cycle", exact(2.0), exact(1.0 * MS), exact(transfer_ms * MS), 0.0, ())
    made = Point("a", 0, READ, period_ms * MS, 0.0, 6_553_600, 10, {"lossy": 1}, {}, exact(READ.delay_ns), seen)
    return replace(made, **values)


def queued(period_ms: float, bound: str = "cycle", transfer_ms: float = 1.0, **values: Any) -> Point:
    """Four reads in flight, whose packets do not show k."""
    setting = replace(READ, queue_depth=4)
    return point(period_ms, seen=Seen(bound, None, None, exact(transfer_ms * MS), 0.0, ()), setting=setting, **values)


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-12)


# --- intervals


def test_a_pooled_value_is_the_mean_by_weight() -> None:
    """Shares of a quarter and three quarters; the half widths are 4 and 8."""
    pooled = _pooled([about(10, 4), about(10, 8)], [1, 3])
    within = sqrt((4 / 4) ** 2 + (3 * 8 / 4) ** 2)
    assert pooled == Estimate(10, close(10 - within), close(10 + within), "packets")
    alone = _pooled([about(3, 1)], [5])
    assert alone == Estimate(3, 2, 4, "packets")


def test_parts_that_scatter_widen_the_interval_of_their_mean() -> None:
    """The standard error of the mean of two, by Student's t with one degree of freedom."""
    pooled = _pooled([about(10, 0), about(20, 0)], [1, 3])
    variance = (1 / 4 * 7.5**2 + 3 / 4 * 2.5**2) * 2
    assert (pooled.value, pooled.low) == (17.5, 0)
    assert pooled.high == close(17.5 + 12.7062 * sqrt(variance / 2))
    three = _pooled([about(99, 0), about(100, 0), about(101, 0)], [1, 1, 1])
    assert (three.low, three.high) == (close(100 - 4.3027 / sqrt(3)), close(100 + 4.3027 / sqrt(3)))


def test_a_rate_has_an_interval_as_wide_as_a_factor() -> None:
    """2 ns for each byte."""
    assert _rate(2, 2, "fit") == Estimate(close(5e8), close(5e8 / e), close(5e8 * e), "fit")
    assert _rate(3, 3, "fit") == Estimate(close(1e9 / 3), close(1e9 / 3 / e), close(1e9 / 3 * e), "fit")
    assert _rate(2, 99, "fit") == Estimate(close(5e8), close(5e5), close(5e11), "fit")
    assert _of_regression("c_bytes_per_s", 2, 2) == _rate(2, 2, "fit")
    assert _of_regression("s_ns", 2, 3) == Estimate(2, 0, 5, "fit")
    # a share is 1 at most
    assert _of_regression("stall_share", 0.75, 0.5) == Estimate(0.75, 0.25, 1, "fit")
    assert _scaled(about(4, 1), 0.5) == Estimate(2, 1.5, 2.5, "packets")


# --- from the packets


def test_of_a_single_point_everything_is_from_its_packets() -> None:
    found = fit([point(period_spread_ns=0.04 * MS)])
    # 0.5 % of the period, 10 % of the hosts' time and the error of the mean; three degrees of freedom
    half = 3.18245 * sqrt(0.04**2 + 0.05**2 + 0.1**2) * MS
    assert found.k == Estimate(2, 2, 2, "packets")
    assert (found.s_ns.value, found.s_ns.source) == (close(MS), "packets")
    assert (found.s_ns.low, found.s_ns.high) == pytest.approx((MS - half, MS + half), rel=2e-3)
    assert found.scatter == pytest.approx(half / (10 * MS), rel=2e-3)
    assert found.c_bytes_per_s == exact(close(65_536_000), "packets")
    assert found.undetermined == (
        "residuals: with a single point s is the remainder, so its residual is 0",
        "k from s: the delays (4.0 ms) differ too little for the scatter; k is from the packets",
        "s from B / C: the I/O sizes (64 KiB) differ too little for the scatter; C is the rate of the bursts",
    )
    assert (found.models_ns, found.residuals) == ((close(10 * MS),), (pytest.approx(0, abs=1e-12),))
    assert (found.cycles_used, found.cycles_left_out) == (10, {"lossy": 1})


def test_points_of_more_cycles_weigh_more() -> None:
    """At one delay, of 2 delays in 10 cycles and 2.4 in 30; of 1 ms on the line and 1.2 ms."""
    other = Seen("cycle", exact(2.4), exact(1.0 * MS), exact(1.2 * MS), 0.0, ())
    found = fit([point(), point(11.8, seen=other, cycle_count=30)])
    assert found.k.value == close((2 + 3 * 2.4) / 4)
    assert found.c_bytes_per_s
    assert found.c_bytes_per_s.value == close(BLOCK / 0.00115)
    assert (found.cycles_used, found.cycles_left_out) == (40, {"lossy": 2})


@pytest.mark.parametrize("slower_ms", [1.3, 6.0])
def test_of_bursts_at_unequal_rates_the_line_is_as_fast_as_the_fastest(slower_ms: float) -> None:
    """64 KiB in 1 ms, and in 1.3 or 6 ms: hosts, or a capture that stamps packets in batches, slow the others down."""
    slow = Seen("cycle", exact(2.0), exact(1.0 * MS), exact(slower_ms * MS), 0.0, ())
    found = fit([point(), point(9.0 + slower_ms, seen=slow, cycle_count=30)])
    assert found.c_bytes_per_s
    assert found.c_bytes_per_s.value == close(BLOCK / 0.001)
    assert found.c_bytes_per_s.low == close(BLOCK / slower_ms * 1e3)
    assert sum(line.startswith("C: bursts pass at ") for line in found.undetermined) == 1
    # a rate that limits commands in flight is the line's, or its receiver's
    for bound in ("line", "receiver"):
        limited = fit([queued(4.0, bound), queued(4 * slower_ms, bound, transfer_ms=slower_ms)])
        assert limited.c_bytes_per_s
        assert limited.c_bytes_per_s.value == close(BLOCK / (1 + slower_ms) * 2e3)


def lined(rate: float, low: float, high: float, **of_seen: Any) -> Seen:
    line = Line(0, round(rate), round(low), round(high), None, 9, None)
    return Seen("cycle", exact(2.0), exact(1.0 * MS), exact(1.0 * MS), 0.0, (), line=line, **of_seen)


def test_the_rate_of_the_line_is_c_whatever_the_bursts_and_periods_show() -> None:
    """64 KiB in 1 ms are 65.5 MB/s; the line carries 40 MB/s, and 64 KiB take 1.6384 ms of it."""
    found = fit([point(seen=lined(40e6, 39e6, 42e6))])
    assert found.c_bytes_per_s == Estimate(close(40e6), 39e6, 42e6, "line")
    # 10 ms, less 2 delays of 4 ms and the line time
    assert found.s_ns.value == close(10 * MS - 8 * MS - 1.6384 * MS)
    assert not any(line.startswith(("C:", "s from B / C")) for line in found.undetermined)
    # two lines, at 30 and 10 of 40 cycles: the mean of the times for a byte
    two = fit([point(seen=lined(40e6, 39e6, 42e6)), point(seen=lined(50e6, 48e6, 51e6), cycle_count=30)])
    assert two.c_bytes_per_s == Estimate(close(1e9 / (25 / 4 + 20 * 3 / 4)), 39e6, 51e6, "line")
    # each point by its own
    assert two.models_ns[0] - two.models_ns[1] == close(BLOCK * (25 - 20))
    # I/O sizes at a third of the rate: the periods do not outvote the line
    blocks = [replace(READ, block_bytes=size << 10) for size in (64, 128, 256)]
    slow = [point(9 + each.block_bytes / 13e3, setting=each, seen=lined(40e6, 39e6, 42e6)) for each in blocks]
    assert fit(slow).c_bytes_per_s == Estimate(close(40e6), 39e6, 42e6, "line")


def test_a_part_of_a_shared_line_and_a_slow_receiver_have_the_rate_of_their_bursts() -> None:
    shared = fit([point(seen=lined(40e6, 39e6, 42e6, is_line_shared=True))])
    assert shared.c_bytes_per_s == exact(close(65_536_000), "packets")
    assert sum("shares a line of 40.0 MB/s with other sessions" in line for line in shared.undetermined) == 1
    slow = fit([point(seen=replace(lined(40e6, 39e6, 42e6), bound="receiver"))])
    assert slow.c_bytes_per_s == exact(close(65_536_000), "packets")


def test_the_service_time_of_a_queue_is_what_its_period_has_beyond_the_model() -> None:
    """Four in flight: 8 ms and 1 ms on the line. Errors: of the mean, 0.5 % of the period, and a tenth of 2.5 ms."""
    for spread_ns, spread_ms in ((0.25 * MS, 0.25), (inf, 0.0)):
        found = fit([queued(11.5, period_spread_ns=spread_ns)])
        half = 3.18245 * sqrt(spread_ms**2 + (0.005 * 11.5) ** 2 + 0.25**2) * MS
        assert found.s_ns.value == pytest.approx(2.5 * MS)
        assert found.s_ns.high - found.s_ns.value == pytest.approx(half, rel=2e-3)
        assert found.s_ns.value - found.s_ns.low == pytest.approx(half, rel=2e-3)
    assert any(line.startswith("k: with several commands in flight") and "; 2 is assumed" in line
               for line in found.undetermined)  # fmt: skip


@pytest.mark.parametrize("made", [point(8.5), queued(8.5)])
def test_a_period_below_the_model_leaves_no_service_time(made: Point) -> None:
    found = fit([made])
    assert (found.s_ns.value, found.s_ns.low) == (0, 0)
    assert found.residuals[0] == pytest.approx(8.5 / 9 - 1)


def test_where_the_line_limits_all_points_the_service_time_is_unknown() -> None:
    found = fit([queued(4.0, "line"), queued(6.0, "window")])
    assert found.s_ns == Estimate(0.0, 0.0, 6.0 * MS, "assumed")
    assert (found.k.value, found.k.source) == (2, "assumed")
    assert any(line.startswith("s: the line or a window limits all cycles") for line in found.undetermined)


def test_only_points_whose_cycle_limits_them_determine_k_and_s() -> None:
    lagging = Seen("window", None, None, exact(1.0 * MS), 0.0, ())
    found = fit([point(), point(30.0, seen=lagging)])
    assert (found.k.value, found.s_ns.value) == (2, close(MS))
    assert found.residuals[1] == pytest.approx(30 / 10 - 1)


def test_bursts_of_no_length_show_no_rate() -> None:
    found = fit([point(9.0, transfer_ms=0.0), point(10.0)])
    assert found.c_bytes_per_s
    assert found.c_bytes_per_s.value == close(65_536_000)
    alone = fit([point(9.0, transfer_ms=0.0)])
    assert (alone.c_bytes_per_s, alone.setting.c_bytes_per_s) == (None, None)
    assert alone.undetermined[0].startswith("C: the data came in single packets")


# --- a socket


def test_one_socket_s_throughput_is_the_c_of_all_points() -> None:
    """64 KiB take 2 ms of it, whatever the bursts show; its window is no other limit."""
    narrow = replace(READ, window_bytes=2 * 1_448)
    found = fit([point(11.0, setting=narrow), point(11.0)], 32_768_000)
    assert found.c_bytes_per_s == exact(32_768_000)
    assert (found.setting.window_bytes, found.setting.c_bytes_per_s) == (None, 32_768_000)
    assert found.s_ns.value == close(MS)
    several = fit([point(11.0), point(10.0), point(13.0)], [32_768_000, 65_536_000, 16_384_000])
    assert several.c_bytes_per_s == Estimate(32_768_000, 16_384_000, 65_536_000, "given")
    assert several.s_ns.value == close(MS)
    for wrong in (0.0, [1.0, -1.0], [1.0, 0.0], [1.0]):
        with pytest.raises(InputInvalid, match="socket throughput"):
            fit([point(), point()], wrong)
    assert fit([point(), point()], [1e9, 1.0]).c_bytes_per_s


# --- by regression


def test_two_delays_and_two_sizes_determine_all_three() -> None:
    """k 3, s 2 ms and 2 ms for 64 KiB; of each period 0.5 % is the error of the model."""
    made = [
        point(
            3 * delay_ms + 2 + 2 * size,
            setting=replace(READ, delay_ns=delay_ms * MS, block_bytes=size * BLOCK),
            delay_ns=exact(delay_ms * MS),
        )
        for delay_ms in (1.0, 8.0)
        for size in (1, 8)
    ]
    found = fit(made)
    assert found.c_bytes_per_s
    sources = (found.k.source, found.s_ns.source, found.c_bytes_per_s.source)
    assert sources == ("fit", "fit", "fit")
    assert found.k.value == pytest.approx(3)
    assert found.s_ns.value == pytest.approx(2 * MS)
    assert found.c_bytes_per_s.value == pytest.approx(BLOCK / 0.002)
    assert found.d_ns.value == 8 * MS
    assert found.undetermined == ()


def test_the_middle_delay_and_the_setting_of_most_cycles() -> None:
    made = [
        point(2 * delay_ms + 2, setting=replace(READ, delay_ns=delay_ms * MS), delay_ns=exact(delay_ms * MS),
              cycle_count=count, left_out={"lossy": count, f"{count}": 1})
        for delay_ms, count in ((8.0, 10), (2.0, 30), (4.0, 20))
    ]  # fmt: skip
    found = fit(made)
    assert (found.d_ns.value, found.setting.delay_ns) == (4 * MS, 2 * MS)
    assert (found.cycles_used, found.cycles_left_out) == (60, {"lossy": 60, "10": 1, "30": 1, "20": 1})
    assert fit(made[:2]).d_ns.value == 8 * MS


@pytest.mark.parametrize(("spread_ms", "source"), [(0.42, "fit"), (0.435, "packets")])
def test_k_is_from_the_regression_if_it_is_known_to_a_quarter(spread_ms: float, source: str) -> None:
    """Of two points: 3.18 times the root of both variances, over 4 ms, is a quarter of k at 0.427 ms."""
    made = [
        point(2 * delay_ms + 2, setting=replace(READ, delay_ns=delay_ms * MS), delay_ns=exact(delay_ms * MS),
              period_spread_ns=spread_ms * MS)
        for delay_ms in (4.0, 8.0)
    ]  # fmt: skip
    found = fit(made)
    assert (found.k.source, found.s_ns.source) == (source, source)
    if source == "fit":
        # 0.5 % of the periods, 10 and 18 ms, are the error of the model, and 10 % of 1 ms that of the hosts
        variance = 2 * spread_ms**2 + 0.05**2 + 0.09**2 + 2 * 0.1**2
        assert found.k.high - found.k.value == pytest.approx(3.18245 * sqrt(variance) / 4, rel=2e-3)


def test_where_c_is_unsure_k_and_s_are_still_from_the_regression() -> None:
    """Of 0.6 ms that the larger size takes longer, 0.2 ms may be scatter; of 8 ms that the longer delay does, too."""
    made = [
        point(2 * delay_ms + 1 + size, transfer_ms=size, delay_ns=exact(delay_ms * MS), period_spread_ns=0.2 * MS,
              setting=replace(READ, delay_ns=delay_ms * MS, block_bytes=round(size * BLOCK)))
        for delay_ms in (4.0, 8.0)
        for size in (1.0, 1.6)
    ]  # fmt: skip
    found = fit(made)
    assert found.c_bytes_per_s
    assert (found.k.source, found.s_ns.source, found.c_bytes_per_s.source) == ("fit", "fit", "packets")
    assert (found.k.value, found.s_ns.value) == (pytest.approx(2, rel=1e-4), pytest.approx(MS, rel=1e-3))


def test_at_one_delay_s_and_c_are_what_the_seen_delays_leave() -> None:
    """2.4 delays of 4 ms, 1 ms of service and 1 ms for each 64 KiB, where the bursts show 3 ms."""
    seen = Seen("cycle", exact(2.4), exact(1.0 * MS), exact(3.0 * MS), 0.0, ())
    made = [point(2.4 * 4 + 1 + size, seen=seen, setting=replace(READ, block_bytes=size * BLOCK)) for size in (1, 8)]
    found = fit(made)
    assert found.c_bytes_per_s
    assert (found.k, found.s_ns.source, found.c_bytes_per_s.source) == (
        Estimate(2.4, 2.4, 2.4, "packets"),
        "fit",
        "fit",
    )
    assert (found.s_ns.value, found.c_bytes_per_s.value) == (pytest.approx(MS), pytest.approx(65_536_000))


# --- waits for windows


def windowed(share: float, *delays_ms: float) -> list[Point]:
    """Reads of 64 KiB in windows of 22 segments: two of three wait, each for the RTT and two segments less a window.

    The hosts take 3 ms, and do other work in a part of the waits.
    """
    made = []
    for delay_ms in delays_ms:
        wait_ms = 2 * delay_ms - (22 - 2) * 1_448 / 65_536
        period_ms = 2 * delay_ms + 3 + 1 + share * 2 * wait_ms
        seen = Seen("cycle", exact(2.0), exact(3.0 * MS), exact(1.0 * MS), 2 * wait_ms * MS, ())
        setting = replace(READ, delay_ns=delay_ms * MS, window_bytes=22 * 1_448)
        made.append(point(period_ms, seen=seen, setting=setting, delay_ns=exact(delay_ms * MS)))
    return made


@pytest.mark.parametrize("share", [0.6, 0.8])
def test_several_delays_show_the_share_of_the_window_waits(share: float) -> None:
    found = fit(windowed(share, 1.0, 4.0, 16.0))
    assert found.stall_share.source == "fit"
    assert found.stall_share.value == pytest.approx(share)
    assert found.stall_share.low < share < found.stall_share.high
    assert (found.k, found.s_ns.source) == (Estimate(2, 2, 2, "packets"), "fit")
    assert found.s_ns.value == pytest.approx(3 * MS)
    assert found.residuals == pytest.approx((0, 0, 0), abs=1e-9)
    # longer waits mean a shorter time of the hosts
    assert -1 < found.correlations["stall_share s_ns"] < 0
    assert not any(line.startswith("k from s") for line in found.undetermined)
    again = fitted_from_document(found.as_dict())
    assert (again.stall_share, again.correlations) == (found.stall_share, found.correlations)


def test_a_share_is_one_where_it_is_not_shown() -> None:
    # at one delay, and where the waits are longer than the window's size explains
    for made in (windowed(0.8, 4.0), windowed(1.2, 1.0, 4.0, 16.0)):
        assert fit(made).stall_share == exact(1.0, "assumed")
    # waits of less than a tenth of the period
    few = [replace(each, period_ns=each.period_ns + 400 * MS) for each in windowed(0.8, 1.0, 4.0)]
    assert fit(few).stall_share.source == "assumed"


# --- the document


def test_a_fit_is_read_back_from_its_document() -> None:
    keys = Solicitation(is_initial_r2t=False, max_burst_bytes=4_096)
    made = fit([point(setting=replace(READ, window_bytes=99_999, solicitation=keys, queue_depth=1))])
    found = fitted_from_document(made.as_dict() | {"unknown": 1})
    assert (found.k, found.d_ns, found.s_ns, found.c_bytes_per_s) == (made.k, made.d_ns, made.s_ns, made.c_bytes_per_s)
    assert (found.setting, found.places, found.k_of_legs) == (made.setting, made.places, 2)
    assert (found.stall_share, found.correlations, found.scatter) == (exact(1.0, "assumed"), {}, made.scatter)
    # without k_of_legs it is that of the setting
    held: Fit = replace(made, setting=replace(made.setting, is_status_held=True), k_of_legs=0.0, c_bytes_per_s=None)
    found = fitted_from_document(held.as_dict())
    assert (found.k_of_legs, found.c_bytes_per_s) == (4, None)
    document = made.as_dict()
    row = document["residuals"][0]
    assert (row["queue_depth"], row["model_ns"], row["period_ns"]) == (1, close(10 * MS), 10 * MS)
    for name in ("k", "setting", "residuals"):
        with pytest.raises(InputInvalid, match=f"'{name}' is missing"):
            fitted_from_document({key: value for key, value in document.items() if key != name})
    with pytest.raises(InputInvalid, match="not a JSON object"):
        fitted_from_document([])


def test_the_queue_depth_of_a_point_is_that_of_all_connections() -> None:
    setting = replace(READ, queue_depth=4, connections=3)
    row = fit([queued(11.5), replace(queued(11.5), setting=setting)]).as_dict()["residuals"][1]
    assert row["queue_depth"] == 12
