"""What a prediction says beside its throughput: the bound, idle time, range; and which settings it refuses."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.fit.points import FittedModel
from iscsitrace.model.cycle import Cycle
from iscsitrace.model.prediction import _name, changed, predict
from iscsitrace.model.setting import Prediction, Setting, Solicitation
from iscsitrace.model.uncertainty import Estimate, predict_with
from iscsitrace.model.what_if import LINE_RATE, SOCKET_RATE, ask, with_values

MS = 1_000_000
READ = Setting("read", 65_536, 4 * MS, 65_536_000)
MIRROR = replace(READ, operation="write", target_delays_ns=(4.0 * MS, 4.0 * MS))


def named(setting: Setting = READ, stall_ns: float = 0, loss_stall_ns: float = 0, **bounds: float) -> str:
    """The name of the bound of a cycle that takes 100 ns with its stall."""
    cycle = Cycle((), 100 - stall_ns, 0, stall_ns, loss_stall_ns)
    return _name(dict.fromkeys(("line", "window", "loss"), inf) | {"cycle": 100.0} | bounds, 100, setting, cycle)


def test_the_first_bound_within_half_a_per_cent_is_named() -> None:
    assert [named(line=rate) for rate in (100.49, 100.51)] == ["line", "cycle"]
    assert named(window=100.4, loss=100.4) == "window"
    assert named(loss=100.4) == "loss"


def test_a_line_is_shared_by_copies_or_connections() -> None:
    settings = (READ, replace(READ, connections=2), MIRROR, replace(MIRROR, target_delays_ns=(4.0 * MS,)))
    assert [named(setting, line=100) for setting in settings] == ["line", "shared_line", "shared_line", "line"]


def test_a_cycle_is_named_by_what_takes_more_than_half_of_it() -> None:
    assert [named(stall_ns=ns, loss_stall_ns=ns) for ns in (50, 51)] == ["cycle", "loss"]
    assert [named(stall_ns=ns) for ns in (50, 51)] == ["cycle", "window"]
    # without what losses cause, and without what a held status waits for
    assert named(stall_ns=60, loss_stall_ns=10) == "cycle"
    assert named(replace(READ, is_status_held=True, ack_delay_ns=10), stall_ns=60) == "cycle"
    assert named(replace(READ, ack_delay_ns=10), stall_ns=60) == "window"
    assert [named(each) for each in (MIRROR, replace(MIRROR, target_delays_ns=(4.0 * MS,)))] == [
        "slowest_target", "cycle",
    ]  # fmt: skip


def test_idle_is_what_the_line_does_not_carry() -> None:
    # a millisecond of the line in 9 ms
    assert predict(READ).idle_fraction == pytest.approx(8 / 9)
    assert predict(replace(READ, c_bytes_per_s=None)).idle_fraction == 1
    assert predict(replace(READ, queue_depth=64)).idle_fraction == 0


def test_a_period_is_that_of_one_place_in_the_queue() -> None:
    # 9 ms alone; eight in flight take as long, and the line would carry nine
    found = predict(replace(READ, queue_depth=4, connections=2))
    assert found.period_ns == pytest.approx(9 * MS)
    assert found.throughput_bytes_per_s == pytest.approx(8 * 65_536 / 0.009)


def test_headers_of_data_pdus_take_their_share_of_the_line() -> None:
    found = predict(replace(READ, block_bytes=8_192, data_pdu_bytes=8_192, queue_depth=200))
    assert found.throughput_bytes_per_s == pytest.approx(65_536_000 * 8_192 / 8_240)


def test_a_mirror_has_the_window_of_its_farthest_target() -> None:
    setting = replace(MIRROR, c_bytes_per_s=None, block_bytes=1 << 20, queue_depth=8, window_bytes=10 * 1_448)
    for delays_ns in ((1.0 * MS, 5.0 * MS), (5.0 * MS, 1.0 * MS)):
        found = predict(replace(setting, target_delays_ns=delays_ns))
        assert (found.bound, found.throughput_bytes_per_s) == ("window", pytest.approx(10 * 1_448 / 0.010, rel=0.005))


def test_losses_need_ten_segments_in_flight() -> None:
    lossy = Setting("read", 10 * 1_448, 4 * MS, loss=1e-6, congestion_control="reno")
    ranges = [
        (lossy, True),
        (replace(lossy, block_bytes=10 * 1_448 - 1), False),
        (replace(lossy, block_bytes=5 * 1_448, queue_depth=2), True),
        (replace(lossy, block_bytes=5 * 1_448), False),
        (replace(lossy, window_bytes=10 * 1_448 - 1), False),
        (replace(lossy, block_bytes=1_448, loss=0.0), True),
    ]
    # of a write the longest burst counts
    keys = Solicitation(is_immediate_data=False, max_burst_bytes=10 * 1_448)
    write = replace(lossy, operation="write", block_bytes=25 * 1_448, solicitation=keys)
    ranges += [(write, True), (changed(write, {"max_burst_bytes": 10 * 1_448 - 1}), False)]
    assert [predict(setting).is_in_range for setting, _ in ranges] == [expected for _, expected in ranges]


@pytest.mark.parametrize(
    ("name", "refused", "accepted"),
    [
        ("block_bytes", 0, 1), ("queue_depth", 0, 1), ("connections", 0, 1), ("segment_bytes", 0, 1),
        ("queue_depth", inf, 2), ("c_bytes_per_s", 0, 1), ("c_bytes_per_s", inf, None), ("call_bytes", 0, 1),
        ("data_pdu_bytes", 0, 1), ("window_bytes", 0, 1), ("start_window_bytes", 0, 1), ("max_burst_bytes", 0, 65_536),
        ("first_burst_bytes", 0, 1), ("max_outstanding_r2t", 0, 1), ("max_recv_data_segment_bytes", 0, 1),
        ("delay_ns", -1, 0), ("service_ns", -1, 0), ("service_spread_ns", -1, 0), ("ack_delay_ns", -1, 0),
        ("delay_ns", inf, 1), ("loss", -0.1, 0), ("loss", 1, 0.5),
    ],
)  # fmt: skip
def test_where_a_setting_begins_to_make_sense(name: str, refused: float, accepted: float | None) -> None:
    base = replace(READ, block_bytes=1_448)
    with pytest.raises(InputInvalid, match=f"^{name} is {refused}; it has to be "):
        predict(changed(base, {name: refused}))
    assert predict(changed(base, {name: accepted})).throughput_bytes_per_s > 0


def test_the_delays_of_a_mirror_are_those_of_writes_and_not_negative() -> None:
    for delays_ns in ((0.0, -1.0), (inf, 1.0)):
        with pytest.raises(InputInvalid, match="target_delays_ns"):
            predict(replace(MIRROR, target_delays_ns=delays_ns))
    assert predict(replace(MIRROR, target_delays_ns=(0.0, 1.0))).throughput_bytes_per_s > 0


# --- with a fit


def fit(**values: Any) -> FittedModel:
    exact = Estimate.exact
    setting = replace(READ, service_ns=MS)
    found = FittedModel(exact(2.0), exact(setting.delay_ns), exact(MS), exact(65_536_000), 2.0, setting)
    return replace(found, **values)


def answer(found: FittedModel) -> tuple[Prediction, float, float]:
    """The prediction for its own setting, and the ends of its interval."""
    interval = predict_with(found.setting, found)
    return interval.prediction, interval.low_bytes_per_s, interval.high_bytes_per_s


def test_scatter_is_a_share_of_the_period() -> None:
    """64 KiB in 10 ms: by a factor up and down, and not shorter than their millisecond on the line."""
    found, low, high = answer(fit(scatter=0.5))
    assert found.throughput_bytes_per_s == pytest.approx(65_536 / 0.010)
    assert (low, high) == pytest.approx((65_536 / 0.015, 65_536 / 0.010 * 1.5))
    assert answer(fit(scatter=20.0))[1:] == pytest.approx((65_536 / 0.210, 65_536 / 0.001))
    # no throughput is less than nothing
    assert answer(fit(scatter=1.0, k=Estimate(2.0, 2.0, 50.0, "fit")))[1] == 0


def test_ends_of_an_interval_below_zero_are_zero_and_no_line_has_no_rate() -> None:
    """2 x 4 ms, a millisecond of service and one on the line: 10 ms."""
    for values, fastest_ms in (
        ({"d_ns": Estimate(4.0 * MS, -1.0 * MS, 4.0 * MS, "fit")}, 2),
        ({"s_ns": Estimate(1.0 * MS, -1.0 * MS, 1.0 * MS, "fit")}, 9),
        ({"k": Estimate(2.0, -1.0, 2.0, "fit")}, 2),
        ({"c_bytes_per_s": Estimate(65_536_000, -1.0, 65_536_000, "fit")}, 10),
        ({"c_bytes_per_s": Estimate(65_536_000, 0.0, 65_536_000, "fit")}, 10),
        ({"c_bytes_per_s": None}, 10),
    ):
        found, low, high = answer(fit(**values))
        assert found.throughput_bytes_per_s == pytest.approx(65_536 / 0.010)
        assert (low, high) == (found.throughput_bytes_per_s, pytest.approx(65_536 / (fastest_ms / 1e3)))


def test_a_fit_without_legs_leaves_the_delays_as_they_are() -> None:
    found, low, high = answer(fit(k_of_legs=0.0, k=Estimate(2.0, 1.0, 3.0, "fit")))
    assert low == high == found.throughput_bytes_per_s == pytest.approx(65_536 / 0.010)


def test_an_answer_has_a_gain_only_with_a_fit() -> None:
    alone, other = ask(READ, {"delay_ns": [0.0, 1.0 * MS]})
    assert [alone.values, other.values] == [{"delay_ns": 0.0}, {"delay_ns": 1.0 * MS}]
    assert (alone.low_bytes_per_s, alone.high_bytes_per_s, alone.gain) == (None, None, None)
    # 10 ms become 6 and 18
    answers = ask(fit().setting, {"delay_ns": [2.0 * MS, 8.0 * MS]}, fit())
    assert [answer.gain for answer in answers] == pytest.approx([10 / 6 - 1, 10 / 18 - 1])


def test_a_rate_becomes_what_it_carries_and_headers_count() -> None:
    assert with_values(READ, {"queue_depth": 2}) == replace(READ, queue_depth=2)
    socket = with_values(READ, {SOCKET_RATE: 8e9})
    assert (socket.c_bytes_per_s, socket.data_pdu_bytes) == (1e9, 8_192)
    line = with_values(READ, {LINE_RATE: 8e9, "max_recv_data_segment_bytes": 65_536})
    assert (line.c_bytes_per_s, line.data_pdu_bytes) == (pytest.approx(1e9 * 1_448 / 1_514), 65_536)
