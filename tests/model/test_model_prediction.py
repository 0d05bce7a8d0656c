"""The model against hand arithmetic: published figures, identities, and monotonic relations."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iscsitrace.errors import InputInvalid
from iscsitrace.fit.points import FittedModel, fitted_from_document
from iscsitrace.model.bounds import loss_window_segments
from iscsitrace.model.cycle import legs
from iscsitrace.model.prediction import changed, grid, predict
from iscsitrace.model.setting import BOUNDS, Prediction, Setting, Solicitation
from iscsitrace.model.uncertainty import Estimate, Fitting, predict_with

MS, MIB = 1_000_000, 1 << 20
READ = Setting("read", 128 << 10, 4 * MS, 40e6)
WRITE = replace(READ, operation="write")
SOLICITED = Solicitation(
    is_initial_r2t=True, is_immediate_data=False, first_burst_bytes=65_536, max_burst_bytes=262_144
)


def test_parameters_that_are_not_known_have_the_defaults_of_the_rfc() -> None:
    """RFC 7143, sections 13.10 to 13.14 and 13.17."""
    assert Solicitation() == Solicitation(
        is_initial_r2t=True,
        is_immediate_data=True,
        first_burst_bytes=65_536,
        max_burst_bytes=262_144,
        max_outstanding_r2t=1,
        max_recv_data_segment_bytes=8_192,
    )


def test_the_solicited_write_of_the_field_takes_106_ms() -> None:
    # 2 MB at 1 Gbit/s are 16 ms; 8 R2Ts of 256 KiB and the command itself: 9 RTTs of 10 ms
    found = predict(Setting("write", 2_000_000, 5 * MS, 125e6, solicitation=SOLICITED))
    assert found.period_ns == pytest.approx(106 * MS)
    assert (found.k, found.transfer_ns, found.stall_ns) == (18, pytest.approx(16 * MS), 0)


@pytest.mark.parametrize(
    ("delay_ms", "mib_per_s", "idle_percent"), [(1, 40, 57), (2, 40, 73), (4, 40, 84), (8, 28, 88), (16, 19.5, 91)]
)
def test_the_idle_fractions_of_the_read_study(delay_ms: int, mib_per_s: float, idle_percent: int) -> None:
    found = predict(Setting("read", 125 << 10, delay_ms * MS, mib_per_s * MIB, is_status_held=True))
    assert [leg.name for leg in found.legs] == ["command", "data", "ack", "status"]
    assert 100 * found.idle_fraction == pytest.approx(idle_percent, abs=0.7)


@pytest.mark.parametrize(
    ("keys", "rounds"),
    [
        # 1 MiB, bursts of 256 KiB
        ({}, 4),
        ({"is_immediate_data": True}, 4),
        ({"is_immediate_data": True, "max_recv_data_segment_bytes": 65_536, "first_burst_bytes": 65_536}, 4),
        ({"is_initial_r2t": False}, 4),
        ({"is_initial_r2t": False, "first_burst_bytes": 262_144}, 3),
        ({"is_initial_r2t": False, "first_burst_bytes": MIB, "max_burst_bytes": MIB}, 0),
        ({"is_immediate_data": True, "max_recv_data_segment_bytes": MIB, "first_burst_bytes": MIB}, 0),
        ({"max_burst_bytes": MIB}, 1),
        ({"max_burst_bytes": MIB - 1}, 2),
    ],
)
def test_a_write_takes_one_rtt_and_one_for_each_r2t(keys: dict[str, Any], rounds: int) -> None:
    setting = changed(replace(WRITE, block_bytes=MIB, solicitation=SOLICITED), keys)
    assert sum(leg.delays for leg in legs(setting)) == 2 + 2 * rounds
    assert predict(setting).period_ns == pytest.approx(8 * MS * (1 + rounds) + MIB / 40e6 * 1e9)


def test_an_invalid_setting_is_reported() -> None:
    for values in (
        {"operation": "verify"}, {"block_bytes": 0}, {"delay_ns": -1}, {"c_bytes_per_s": 0.0}, {"loss": 1.0},
        {"congestion_control": "bbr"}, {"max_burst_bytes": 0}, {"target_delays_ns": (1.0,)}, {"queue_depth": 0},
    ):  # fmt: skip
        with pytest.raises(InputInvalid, match=next(iter(values))):
            predict(changed(READ, values))
    with pytest.raises(InputInvalid, match="has no duration"):
        predict(Setting("read", 4096, 0.0))


# --- windows and slow start


def test_each_full_window_waits_one_rtt() -> None:
    # without a rate: 100 segments by 10 are 10 rounds, 9 of which wait for the ACK of the one before
    setting = Setting("read", 100 * 1_448, 4 * MS, window_bytes=10 * 1_448)
    found = predict(setting)
    assert (found.stall_ns, found.period_ns) == (pytest.approx(9 * 8 * MS), pytest.approx(10 * 8 * MS))
    assert found.bound == "window"
    # of 11 segments one is acknowledged only with the next
    assert predict(replace(setting, window_bytes=11 * 1_448)).stall_ns == found.stall_ns


def test_slow_start_doubles_until_the_block_is_sent_or_the_line_is_full() -> None:
    # 10 + 20 + 40 + 80 segments hold 150: three waits of one RTT
    free = Setting("read", 150 * 1_448, 4 * MS, start_window_bytes=10 * 1_448)
    assert predict(free).stall_ns == pytest.approx(3 * 8 * MS)
    assert predict(replace(free, block_bytes=151 * 1_448)).stall_ns == pytest.approx(4 * 8 * MS)
    # at a segment a millisecond 10 segments fill the 8 ms and the two segments that an ACK waits for
    assert predict(replace(free, c_bytes_per_s=1_448_000)).stall_ns == 0
    assert predict(replace(free, c_bytes_per_s=1_448_000, start_window_bytes=4 * 1_448)).stall_ns == pytest.approx(
        (8 + 2 - 4) * MS + (8 + 2 - 8) * MS, rel=1e-4
    )


def test_slow_start_continues_from_burst_to_burst() -> None:
    # 10, 20 for 30 segments unasked; then a window of 40 holds the first R2T's 40, and 80 what is left
    keys = Solicitation(is_initial_r2t=False, first_burst_bytes=30 * 1_448, max_burst_bytes=40 * 1_448)
    setting = Setting("write", 110 * 1_448, 4 * MS, solicitation=keys, start_window_bytes=10 * 1_448)
    assert (predict(setting).k, predict(setting).stall_ns) == (2 + 2 * 2, pytest.approx(8 * MS))


# --- several commands


def test_several_r2ts_in_flight_share_rtts_and_the_line() -> None:
    def period_ms(outstanding: int, c: float | None) -> float:
        keys = replace(SOLICITED, max_burst_bytes=1_000_000, max_outstanding_r2t=outstanding)
        return predict(Setting("write", 8_000_000, 5 * MS, c, solicitation=keys)).period_ns / MS

    assert [period_ms(each, None) for each in (1, 2, 4, 8)] == pytest.approx([90, 50, 30, 20])
    # a burst takes 1 ms: with four at once, the fifth is requested when the first has arrived
    assert period_ms(4, 1e9) == pytest.approx(10 + 10 + 1 + 10 + 4)
    # 10 ms each: the line is busy from the first burst to the last
    assert period_ms(4, 1e8) == pytest.approx(10 + 10 + 80)


@pytest.mark.parametrize(
    ("depth", "expected_mb_per_s", "bound"), [(1, 6.0, "cycle"), (3, 18.0, "cycle"), (16, 40, "line")]
)
def test_queued_reads_add_up_until_the_line_is_full(depth: int, expected_mb_per_s: float, bound: str) -> None:
    # 60 kB in 8 ms and 2 ms
    found = predict(Setting("read", 60_000, 4 * MS, 40e6, service_ns=0.5 * MS, queue_depth=depth))
    assert found.throughput_bytes_per_s == pytest.approx(expected_mb_per_s * 1e6)
    assert (found.bound, found.period_ns) == (bound, pytest.approx(depth * 60_000 / expected_mb_per_s * 1e3))


def test_commands_wait_behind_bursts_on_their_connection() -> None:
    # eight bursts of 10 ms pass the line one after another; their statuses, commands and R2Ts take one RTT each
    keys = replace(SOLICITED, max_burst_bytes=400_000)
    found = predict(Setting("write", 400_000, 10 * MS, 40e6, queue_depth=8, solicitation=keys))
    assert found.period_ns == pytest.approx((8 * 10 + 20) * MS)


def test_a_mirror_waits_for_the_farthest_target_and_shares_the_line() -> None:
    keys = Solicitation(is_initial_r2t=False, first_burst_bytes=MIB, max_burst_bytes=MIB)
    alone = Setting("write", 400_000, 10 * MS, 40e6, solicitation=keys)
    near_first = predict(replace(alone, target_delays_ns=(1 * MS, 10 * MS)))
    assert (near_first.period_ns, near_first.bound) == (pytest.approx((10 + 10 + 20) * MS), "slowest_target")
    far_first = predict(replace(alone, target_delays_ns=(10 * MS, 1 * MS)))
    assert far_first.period_ns == pytest.approx((10 + 20) * MS)
    full = predict(replace(alone, target_delays_ns=(1 * MS, 1 * MS), queue_depth=8))
    assert (full.throughput_bytes_per_s, full.bound) == (pytest.approx(20e6), "shared_line")


def test_the_nearer_target_of_a_mirrored_call_runs_ahead() -> None:
    # bursts of 10 ms; the near target's four are out after 60 ms, between the far one's first two; of its others the
    # last is requested 40 ms after the second is out, at 40 ms: out at 90 ms, and its status comes at 130 ms
    keys = Solicitation(is_initial_r2t=False, first_burst_bytes=MIB, max_burst_bytes=MIB)
    call = Setting("write", 400_000, 20 * MS, 40e6, queue_depth=2, call_bytes=1_600_000, solicitation=keys)
    found = predict(replace(call, target_delays_ns=(0.0, 20.0 * MS)))
    assert 4 * 400_000 / found.throughput_bytes_per_s * 1e9 == pytest.approx(130 * MS)


def test_connections_add_up_until_the_line_is_full() -> None:
    found = [predict(replace(READ, window_bytes=40 * 1_448, connections=each, queue_depth=4)) for each in (1, 2, 16)]
    assert [each.bound for each in found] == ["window", "window", "shared_line"]
    assert found[1].throughput_bytes_per_s == pytest.approx(2 * found[0].throughput_bytes_per_s, rel=0.01)


# --- losses


@pytest.mark.parametrize(
    ("loss", "cubic", "behind"),
    [(1e-2, 12, 1), (1e-3, 38, 1), (1e-4, 187, 0), (1e-5, 1_054, 0), (1e-6, 5_926, 0)],
)
def test_average_windows_are_those_of_the_table_of_cubic(loss: float, cubic: int, behind: int) -> None:
    """RFC 8312, table 1: an RTT of 0.1 s. Where it grows as Reno does, Linux is about a segment behind the table."""
    assert loss_window_segments(loss, 0.1, "cubic") + behind == pytest.approx(cubic, rel=0.05)


@pytest.mark.parametrize("loss", [1e-4, 1e-5, 1e-6])
def test_average_windows_of_reno_are_those_of_independent_losses(loss: float) -> None:
    # Ott, Kemperman and Mathis 1996, "The stationary behavior of ideal TCP congestion avoidance"
    assert loss_window_segments(loss, 0.1, "reno") == pytest.approx(1.309 / loss**0.5, rel=0.015)


@pytest.mark.parametrize("most", [10.0, 40.0, inf])
def test_average_windows_are_those_of_one_segment_after_the_other(most: float) -> None:
    chance, loss, window, sent, rounds = np.random.default_rng(1), 2e-3, 20.0, 0, 0
    while rounds < 60_000:
        lost = np.flatnonzero(chance.random(int(window)) < loss)
        sent, rounds = sent + int(window), rounds + 1
        if not len(lost):
            window = min(most, window + 1)
        else:
            window = max(1.0, window / 2)
            sent, rounds = sent + int(window), rounds + 1
    assert loss_window_segments(loss, 0.1, "reno", most) == pytest.approx(sent / rounds, rel=0.02)


@settings(deadline=None)
@given(st.floats(1e-300, 1, exclude_max=True), st.floats(0.5, 1e6) | st.just(inf), st.sampled_from(["reno", "cubic"]))
def test_an_average_window_is_within_its_bounds(loss: float, most: float, control: str) -> None:
    window = loss_window_segments(loss, 0.1, control, most)
    assert 0.5 * (1 - 1e-9) <= window <= most * (1 + 1e-9)
    assert window <= loss_window_segments(loss / 2, 0.1, control, most) * (1 + 1e-3)


def test_losses_bound_the_throughput_and_few_data_are_reported() -> None:
    lossy = replace(READ, queue_depth=16, loss=0.001, congestion_control="reno")
    found = predict(lossy)
    assert (found.bound, found.is_in_range) == ("loss", True)
    # 40.1 segments on average every 8 ms and the two segments that an ACK waits for
    assert found.throughput_bytes_per_s == pytest.approx(1_448 * 40.1 / (0.008 + 2 * 1_448 / 40e6), rel=1e-3)
    assert not predict(replace(lossy, loss=0.02)).is_in_range
    assert not predict(replace(lossy, block_bytes=4_096, queue_depth=1)).is_in_range
    assert predict(replace(lossy, loss=0.0)).bound == "line"


# --- monotonic relations

SETTINGS = st.builds(
    Setting,
    operation=st.sampled_from(("read", "write")),
    block_bytes=st.integers(512, MIB // 2),
    delay_ns=st.floats(0, 50 * MS),
    c_bytes_per_s=st.floats(1e5, 1e9),
    service_ns=st.floats(0, 20 * MS),
    is_status_held=st.booleans(),
    solicitation=st.builds(
        Solicitation,
        is_initial_r2t=st.booleans(),
        is_immediate_data=st.booleans(),
        first_burst_bytes=st.integers(512, MIB),
        max_burst_bytes=st.integers(16_384, MIB),
        max_outstanding_r2t=st.integers(1, 4),
    ),
    window_bytes=st.none() | st.integers(16_384, 4 * MIB),
)


@settings(max_examples=60, deadline=None)
@given(SETTINGS, st.floats(1, 4))
def test_one_command_gains_by_less_of_anything_and_its_parts_add_up(setting: Setting, factor: float) -> None:
    found = predict(setting)
    assert found.period_ns == pytest.approx(
        found.k * setting.delay_ns + setting.service_ns + found.transfer_ns + found.stall_ns, rel=1e-6, abs=10
    )
    assert found.stall_ns >= -1
    assert 0 <= found.idle_fraction <= 1
    assert found.bound in BOUNDS
    for better in (
        {"delay_ns": setting.delay_ns / factor},
        {"service_ns": setting.service_ns / factor},
        {"c_bytes_per_s": (setting.c_bytes_per_s or 0) * factor},
        {"window_bytes": None},
    ):
        assert predict(changed(setting, better)).throughput_bytes_per_s >= found.throughput_bytes_per_s * (1 - 1e-6)


@pytest.mark.parametrize("delay_ns", [5e-324, 1e-300, 1e-30, 1e-9, 1e-5, 1.0, 1.0 * MS])
@pytest.mark.parametrize("c_bytes_per_s", [14144957.24, 14144957.243970715])
def test_a_delay_far_below_the_line_time_still_counts_at_most_its_rounds(delay_ns: float, c_bytes_per_s: float) -> None:
    # 110918 bytes after the immediate 8192 are 7 bursts, two requested at once: 1 to 4 rounds
    keys = Solicitation(max_burst_bytes=16_384, max_outstanding_r2t=2)
    setting = Setting("write", 119_110, delay_ns, c_bytes_per_s, service_ns=1e-310, solicitation=keys)
    found = predict(setting)
    assert 2 + 2 * 1 <= found.k <= 2 + 2 * 4
    assert found.period_ns == pytest.approx(119_110 / c_bytes_per_s * 1e9 + found.k * delay_ns)


@settings(max_examples=60, deadline=None)
@given(SETTINGS, st.integers(2, 6))
def test_more_commands_are_never_slower_nor_faster_than_the_line(setting: Setting, depth: int) -> None:
    found, more = predict(setting), predict(replace(setting, queue_depth=depth))
    assert more.throughput_bytes_per_s >= found.throughput_bytes_per_s * 0.97
    assert more.throughput_bytes_per_s <= (setting.c_bytes_per_s or 0) * (1 + 1e-6)
    assert more.throughput_bytes_per_s <= depth * found.throughput_bytes_per_s * 1.03 or setting.is_status_held


# --- uncertainty


def fitted(**values: Any) -> FittedModel:
    exact = Estimate.exact
    setting = replace(READ, service_ns=1.0 * MS)
    found = FittedModel(exact(2.0), exact(setting.delay_ns), exact(1.0 * MS), exact(40e6), 2.0, setting)
    return replace(found, **values)


def answer(setting: Setting, fit: Fitting) -> tuple[Prediction, float, float]:
    """The prediction, and the ends of its interval."""
    found = predict_with(setting, fit)
    return found.prediction, found.low_bytes_per_s, found.high_bytes_per_s


def test_an_exact_fit_has_no_uncertainty() -> None:
    prediction, low, high = answer(fitted().setting, fitted())
    assert low == high == prediction.throughput_bytes_per_s == predict(fitted().setting).throughput_bytes_per_s


@pytest.mark.parametrize(
    ("name", "value", "relative_ns"),
    [("k", 2.0, 4 * MS), ("d_ns", 4.0 * MS, 2), ("s_ns", 1.0 * MS, 1)],
)
def test_the_uncertainty_of_a_parameter_carries_over_to_the_period(name: str, value: float, relative_ns: float) -> None:
    off = 0.1 * value
    fit = fitted(**{name: Estimate(value, value - off, value + off, "fit")})
    prediction, low, high = answer(fit.setting, fit)
    period_ns = prediction.period_ns
    assert 1 / low == pytest.approx((period_ns + off * relative_ns) / READ.block_bytes / 1e9)
    assert 1 / high == pytest.approx((period_ns - off * relative_ns) / READ.block_bytes / 1e9)


def test_set_values_are_exact_and_uncertainties_add_as_squares() -> None:
    wide = Estimate(4.0 * MS, 3.0 * MS, 5.0 * MS, "fit")
    fit = fitted(d_ns=wide)
    _, low, high = answer(replace(fit.setting, delay_ns=8.0 * MS), fit)
    assert low == high
    # a run may take a tenth longer, or as much less
    one = fitted(scatter=0.1)
    prediction, low, high = answer(one.setting, one)
    assert (low, high) == pytest.approx([prediction.throughput_bytes_per_s / each for each in (1.1, 1 / 1.1)])
    both = replace(fit, scatter=0.1)
    below = [predict(both.setting).throughput_bytes_per_s - answer(both.setting, each)[1] for each in (fit, one, both)]
    assert below[2] ** 2 == pytest.approx(below[0] ** 2 + below[1] ** 2)


def test_a_fitted_k_is_kept_in_what_ifs() -> None:
    fit = fitted(k=Estimate.exact(2.2))
    found = predict_with(replace(fit.setting, is_status_held=True), fit)
    assert found.prediction.k == pytest.approx(4.4)


def test_a_grid_has_every_combination_and_the_last_list_varies_fastest() -> None:
    found = grid(READ, block_bytes=(1_024, 2_048), max_burst_bytes=(512, 1_024))
    pairs = [(each.block_bytes, each.solicitation.max_burst_bytes) for each in found]
    assert pairs == [(1_024, 512), (1_024, 1_024), (2_048, 512), (2_048, 1_024)]
    assert grid(READ) == (READ,)


@pytest.mark.parametrize("document", [[], {}, {"k": 1}, None, {"k": {"value": 1}}])
def test_an_invalid_fit_is_reported(document: object) -> None:
    with pytest.raises(InputInvalid, match="not the output of model fit --json"):
        fitted_from_document(document)


@pytest.mark.parametrize(("segment_bytes", "k"), [(8_192, 4), (65_535, 4), (65_536, 2)])
def test_immediate_data_fits_one_data_segment_of_the_target(segment_bytes: int, k: int) -> None:
    """With InitialR2T=Yes the rest waits for an R2T: one more RTT (RFC 7143, sections 13.11 and 13.12)."""
    keys = Solicitation(is_initial_r2t=True, is_immediate_data=True, max_recv_data_segment_bytes=segment_bytes)
    assert predict(Setting("write", 65_536, 4 * MS, solicitation=keys)).k == k


def test_a_held_status_leaves_with_other_data_only_if_that_comes_before_the_ack() -> None:
    """Two reads over 4 ms each way. Their target takes 20 ms: the next data comes after 18, the ACK after 8."""
    setting = Setting("read", 65_536, 4 * MS, service_ns=20 * MS, queue_depth=2, is_status_held=True)
    assert predict(setting).throughput_bytes_per_s == pytest.approx(2 * 65_536 / 0.036)
    # without service time, eight in flight: data comes long before the ACK, for which the status waits: (8 ms + it) / 8
    setting = replace(setting, service_ns=0.0, queue_depth=8)
    assert predict(setting).throughput_bytes_per_s == pytest.approx(8 * 65_536 / (0.008 * 8 / 7))


@pytest.mark.parametrize(
    ("window_bytes", "segments"), [(5 * 1_448 + 100, 4), (4 * 1_448, 4), (4 * 1_448 - 1, 2), (2_000, 1)]
)
def test_a_window_advances_in_pairs_of_full_segments(window_bytes: int, segments: int) -> None:
    """In each RTT, the part of a window below a full segment waits, and an odd segment waits for its ACK."""
    setting = Setting("read", 1 << 20, 4 * MS, queue_depth=8, window_bytes=window_bytes)
    # the last window of a block may be short
    assert predict(setting).throughput_bytes_per_s == pytest.approx(segments * 1_448 / 0.008, rel=0.002)
