"""How far predictions from a fit may be off outside of the fitted settings: each reading by hand."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Any

import pytest

from iscsitrace.fit.points import FittedModel
from iscsitrace.model.setting import Setting
from iscsitrace.model.uncertainty import Estimate, FittedPlace, Interval, predict_with
from iscsitrace.model.what_if import ask
from tests.support.tables_by_hand import MS

exact = Estimate.exact
KIB = 1 << 10
BLOCK = 64 * KIB
READ = Setting("read", BLOCK, 4.0 * MS, 65_536_000, service_ns=3.0 * MS)
"""8 ms of delays, 3 ms of hosts, 1 ms on the line: 12 ms."""


def place(block_bytes: int = BLOCK, *, delay_ms: float = 4.0, depth: int = 1, period_ms: float = 12.0,
          **values: Any) -> FittedPlace:  # fmt: skip
    made = FittedPlace(block_bytes, delay_ms * MS, depth, False, False, period_ms * MS, "cycle")
    return replace(made, **values)


def fit(*places: FittedPlace, setting: Setting = READ, **values: Any) -> FittedModel:
    found = FittedModel(
        exact(2.0, "packets"), exact(setting.delay_ns, "packets"), exact(3.0 * MS, "packets"),
        exact(65_536_000, "packets"), 2.0, setting, places=places or (place(),),
    )  # fmt: skip
    return replace(found, **values)


def periods_ms(found: Interval, block_bytes: int = BLOCK) -> list[float]:
    """The shortest, the predicted and the longest period."""
    ends = (found.high_bytes_per_s, found.prediction.throughput_bytes_per_s, found.low_bytes_per_s)
    return [block_bytes * 1e3 / each for each in ends]


def close(*values: float) -> Any:
    return pytest.approx(values, rel=1e-6)


def test_at_a_fitted_setting_nothing_is_in_doubt() -> None:
    found = predict_with(READ, fit())
    assert periods_ms(found) == close(12, 12, 12)
    assert found.doubts == ()


# --- the hosts' time


def test_the_hosts_time_may_grow_with_the_io_size() -> None:
    """Four times the size: 8 + 3 + 4 ms, or 8 + 12 + 4; a quarter: 8 + 3 + 1/4, or 8 + 3/4 + 1/4."""
    larger = predict_with(replace(READ, block_bytes=4 * BLOCK), fit())
    assert periods_ms(larger, 4 * BLOCK) == close(15, 15, 24)
    assert larger.doubts == ("I/O size outside the fitted range: the hosts' time may grow with the I/O size",)
    smaller = predict_with(replace(READ, block_bytes=BLOCK // 4), fit())
    assert periods_ms(smaller, BLOCK // 4) == close(9, 11.25, 11.25)
    # between two fitted sizes, or where a regression separates both, there is no such doubt
    two = (place(BLOCK // 8), place(8 * BLOCK))
    assert not predict_with(replace(READ, block_bytes=BLOCK * 4), fit(*two)).doubts
    assert not predict_with(replace(READ, block_bytes=BLOCK * 4), fit(c_bytes_per_s=exact(65_536_000, "fit"))).doubts
    # 64 MiB are as far from 512 KiB as they are
    far = predict_with(replace(READ, block_bytes=1024 * BLOCK), fit(*two))
    assert periods_ms(far, 1024 * BLOCK) == close(8 + 3 + 1024, 8 + 3 + 1024, 8 + 3 * 128 + 1024)


def test_a_service_time_that_is_given_is_not_in_doubt() -> None:
    found = predict_with(replace(READ, block_bytes=4 * BLOCK), fit(), {"service_ns"})
    assert periods_ms(found, 4 * BLOCK) == close(15, 15, 15)
    found = predict_with(replace(READ, block_bytes=4 * BLOCK, service_ns=1.0 * MS), fit())
    assert periods_ms(found, 4 * BLOCK) == close(13, 13, 13)


def test_hosts_may_serve_commands_one_after_another() -> None:
    """Four in flight: each takes 12 ms, or 8 + 4 x 3 + 1; three times faster on the whole, or less than twice."""
    found = predict_with(replace(READ, queue_depth=4), fit())
    assert periods_ms(found, 4 * BLOCK) == close(12, 12, 21)
    assert found.doubts == ("queue depth outside the fitted range: the hosts may serve commands one after another",)
    # at two of the fitted depths, whatever the number of connections
    assert not predict_with(replace(READ, queue_depth=2, connections=2), fit(place(depth=1), place(depth=4))).doubts


def test_the_hosts_time_may_grow_with_all_that_is_outside() -> None:
    """A quarter of the size and eight times the depth: 3/4 ms, 24 or 6 ms; the errors add as squares."""
    found = predict_with(replace(READ, block_bytes=BLOCK // 4, queue_depth=8), fit())
    periods = {"predicted": 8 + 3, "size": 8 + 0.75, "depth": 8 + 24, "both": 8 + 6}
    rates = {name: 8 * BLOCK / 4 * 1e3 / (period + 0.25) for name, period in periods.items()}
    off = {name: rate - rates["predicted"] for name, rate in rates.items()}
    assert found.prediction.throughput_bytes_per_s == pytest.approx(rates["predicted"])
    assert found.low_bytes_per_s == pytest.approx(rates["predicted"] - hypot(off["depth"], off["both"]))
    assert found.high_bytes_per_s == pytest.approx(rates["size"])
    assert len(found.doubts) == 2


def test_where_k_is_assumed_the_hosts_time_may_be_delays() -> None:
    """Twice the delay: 16 + 3 + 1 ms, or 16 + 6 + 1."""
    other = replace(READ, delay_ns=8.0 * MS)
    assert not predict_with(other, fit()).doubts
    found = predict_with(other, fit(k=exact(2.0, "assumed")))
    assert periods_ms(found) == close(20, 20, 23)
    assert found.doubts == ("delay outside the fitted range: the hosts' time may contain delays of the path",)
    # without delay the hosts' time is at least a thousandth
    none = predict_with(replace(READ, delay_ns=0.0), fit(k=exact(2.0, "assumed")))
    assert periods_ms(none) == close(1.003, 4, 4)


def test_a_slow_receiver_may_depend_on_the_delay() -> None:
    """64 KiB in a millisecond, or in two at twice the delay."""
    slow = fit(place(bound="receiver"), s_ns=exact(0.0, "assumed"), setting=replace(READ, service_ns=0.0))
    found = predict_with(replace(slow.setting, delay_ns=8.0 * MS), slow)
    assert periods_ms(found) == close(17, 17, 18)
    assert found.doubts == ("delay outside the fitted range: the rate that windows leave may depend on it",)
    assert not predict_with(slow.setting, slow).doubts


def test_waits_for_a_window_of_unknown_size_may_grow_with_the_delay() -> None:
    """Two of the 3 ms are such waits: four at twice the delay, one at half of it."""
    made = fit(place(window_wait_ns=2.0 * MS))
    found = predict_with(replace(READ, delay_ns=8.0 * MS), made)
    assert periods_ms(found) == close(20, 20, 22)
    assert found.doubts == ("delay outside the fitted range: waits for a window of unknown size may grow with it",)
    assert periods_ms(predict_with(replace(READ, delay_ns=2.0 * MS), made)) == close(7, 8, 8)
    assert not predict_with(replace(READ, delay_ns=4.1 * MS), made).doubts


# --- statuses that are held

HELD = replace(READ, is_status_held=True)


@pytest.mark.parametrize(("block_bytes", "is_held", "is_doubted"), [
    (BLOCK, True, False), (2 * BLOCK, True, False), (4 * BLOCK, True, False),
    (5 * BLOCK, True, True), (9 * BLOCK, False, True), (15 * BLOCK, False, True),
    (16 * BLOCK, False, False), (BLOCK // 2, True, True), (32 * BLOCK, False, True),
])  # fmt: skip
def test_the_nearest_fitted_size_shows_whether_the_status_is_held(
    block_bytes: int, is_held: bool, is_doubted: bool
) -> None:
    """Held at 64 and 256 KiB, and not at 1 MiB."""
    apart = {"is_status_apart": True}
    places = [place(size, is_status_held=size < 16 * BLOCK, **apart) for size in (BLOCK, 4 * BLOCK, 16 * BLOCK)]
    made = fit(*places, setting=HELD, k=exact(4.0, "packets"), k_of_legs=4.0, c_bytes_per_s=exact(65_536_000, "fit"))
    found = predict_with(replace(HELD, block_bytes=block_bytes), made)
    assert found.prediction.setting.is_status_held == is_held
    assert any("whether the status waits for an ACK" in doubt for doubt in found.doubts) == is_doubted
    shortest, predicted, longest = periods_ms(found, block_bytes)
    rest_ms = 3 + block_bytes / BLOCK
    assert predicted == pytest.approx((16 if is_held else 8) + rest_ms)
    both = (8 + rest_ms, 16 + rest_ms)
    assert (shortest, longest) == (close(*both) if is_doubted else close(predicted, predicted))


def test_a_status_in_the_last_data_is_never_held() -> None:
    found = predict_with(replace(READ, block_bytes=4 * BLOCK), fit(c_bytes_per_s=exact(65_536_000, "fit")))
    assert not found.doubts
    # what the user says about it is not in doubt
    apart = fit(place(is_status_apart=True), c_bytes_per_s=exact(65_536_000, "fit"))
    asked = replace(HELD, block_bytes=4 * BLOCK)
    assert predict_with(asked, apart).doubts
    found = predict_with(asked, apart, {"is_status_held"})
    assert (found.prediction.setting.is_status_held, found.doubts) == (True, ())


def test_another_operation_was_not_fitted() -> None:
    found = predict_with(replace(READ, operation="write", block_bytes=BLOCK // 8), fit(place(is_status_held=True)))
    assert (found.prediction.setting.is_status_held, found.doubts) == (False, ())


# --- waits for windows

WINDOW = replace(READ, window_bytes=22 * 1_448)
"""Of 64 KiB in windows of 22 segments two waits: each 8 ms less what a window takes on the line, and two segments."""


def test_hosts_may_work_while_a_command_waits_for_a_window() -> None:
    """At twice the delay, two waits of 16 ms less the line may hide all of the hosts' time; at half of it, none."""
    made = fit(setting=WINDOW)
    stall_ms = predict_with(WINDOW, made).prediction.stall_ns / MS
    assert 12 < stall_ms < 16
    longer = predict_with(replace(WINDOW, delay_ns=8.0 * MS), made)
    more_ms = longer.prediction.stall_ns / MS
    # 3 ms are seen, up to 3 more are hidden; in longer waits all six may be
    hidden_ms = min(6.0, 3 * more_ms / stall_ms)
    assert periods_ms(longer) == close(20 + more_ms - (hidden_ms - 3), 20 + more_ms, 20 + more_ms)
    assert any("how much the hosts work during waits for windows" in doubt for doubt in longer.doubts)
    without = predict_with(replace(WINDOW, window_bytes=None), made)
    assert periods_ms(without) == close(12, 12, 15)
    # several delays show the share
    assert not predict_with(
        replace(WINDOW, delay_ns=8.0 * MS), fit(setting=WINDOW, stall_share=exact(0.5, "fit"))
    ).doubts
    assert not predict_with(WINDOW, made).doubts


def test_a_fitted_share_of_the_waits_is_uncertain() -> None:
    whole_ms = predict_with(WINDOW, fit(setting=WINDOW)).prediction.stall_ns / MS
    found = predict_with(WINDOW, fit(setting=WINDOW, stall_share=Estimate(0.75, 0.5, 1.0, "fit")))
    assert periods_ms(found) == close(*(12 + share * whole_ms for share in (0.5, 0.75, 1.0)))


# --- parameters and runs


def test_what_comes_from_the_packets_of_one_period_changes_together() -> None:
    """A line half as fast is 1 ms longer on the line, and leaves 2 of 3 ms to the hosts."""
    half = Estimate(65_536_000, 32_768_000, 65_536_000, "packets")
    assert periods_ms(predict_with(READ, fit(c_bytes_per_s=half))) == close(12, 12, 12)
    # at four times the size the line takes 4 ms or 8
    found = predict_with(replace(READ, block_bytes=4 * BLOCK), fit(place(), place(4 * BLOCK), c_bytes_per_s=half))
    assert periods_ms(found, 4 * BLOCK) == close(15, 15, 18)
    # a k of 2.25 has 9 ms, and leaves 2 to the hosts; at twice the delay it is 18
    more = fit(k=Estimate(2.0, 2.0, 2.25, "packets"))
    assert periods_ms(predict_with(READ, more)) == close(12, 12, 12)
    assert periods_ms(predict_with(replace(READ, delay_ns=8.0 * MS), more)) == close(20, 20, 21)
    # by a regression each has its own interval
    apart = fit(k=Estimate(2.0, 2.0, 2.25, "fit"))
    assert periods_ms(predict_with(READ, apart)) == close(12, 12, 13)


@pytest.mark.parametrize(("correlation", "square"), [(0.0, 2.0), (-1.0, 0.0), (-0.5, 1.0), (1.0, 4.0)])
def test_errors_that_a_regression_correlates_add_or_cancel(correlation: float, square: float) -> None:
    """k and s may each make a throughput of 12 ms that of 13 ms."""
    made = fit(
        k=Estimate(2.0, 2.0, 2.25, "fit"),
        s_ns=Estimate(3.0 * MS, 3.0 * MS, 4.0 * MS, "fit"),
        correlations={"k s_ns": correlation},
    )
    found = predict_with(READ, made)
    step = BLOCK * 1e3 / 12 - BLOCK * 1e3 / 13
    assert found.prediction.throughput_bytes_per_s - found.low_bytes_per_s == pytest.approx(square**0.5 * step)


def test_the_scatter_counts_once_more_for_each_doubling_of_the_period() -> None:
    """A tenth at the fitted setting; at 24 ms, which is a doubling, two."""
    made = fit(scatter=0.1)
    assert periods_ms(predict_with(READ, made)) == close(12 / 1.1, 12, 12 * 1.1)
    found = predict_with(replace(READ, delay_ns=10.0 * MS), made)
    assert periods_ms(found) == close(24 / 1.2, 24, 24 * 1.2)
    # inside of the fitted delays it does not
    found = predict_with(replace(READ, delay_ns=10.0 * MS), fit(place(delay_ms=1), place(delay_ms=16), scatter=0.1))
    assert periods_ms(found) == close(24 / 1.1, 24, 24 * 1.1)


def test_under_losses_the_model_is_a_tenth_off() -> None:
    # so rare that no command waits for one
    setting = replace(READ, loss=1e-8, window_bytes=None)
    found = predict_with(setting, fit(setting=READ), {"loss"})
    predicted = found.prediction.throughput_bytes_per_s
    assert found.low_bytes_per_s == pytest.approx(predicted / 1.1, rel=1e-3)
    assert found.high_bytes_per_s == pytest.approx(predicted * 1.1, rel=1e-3)


def test_no_throughput_exceeds_the_line() -> None:
    made = fit(scatter=99.0, c_bytes_per_s=Estimate(65_536_000, 6e7, 8e7, "fit"))
    assert predict_with(READ, made).high_bytes_per_s == pytest.approx(8e7)
    exact_line = predict_with(replace(READ, c_bytes_per_s=1e7), made)
    assert exact_line.high_bytes_per_s == pytest.approx(1e7)


def test_answers_have_the_doubts_of_their_predictions() -> None:
    inside, outside = ask(READ, {"block_bytes": [BLOCK, 4 * BLOCK]}, fit())
    assert inside.doubts == ()
    assert outside.as_dict()["doubts"] == [
        "I/O size outside the fitted range: the hosts' time may grow with the I/O size"
    ]
    given = ask(READ, {"block_bytes": [4 * BLOCK], "service_ns": [3.0 * MS]}, fit())[0]
    assert given.low_bytes_per_s == given.high_bytes_per_s
