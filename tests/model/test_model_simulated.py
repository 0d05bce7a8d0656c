"""The model against the simulated world, in which only effects in the model take time: a part of `bench.model`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import model
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Setting

_BYTES_MOST = 26 << 20
_EVERY = 6
SETTINGS = [
    (kind, setting)
    for kind, setting in model.settings()
    if not (setting.loss or setting.service_spread_ns) and model.bytes_moved(setting) <= _BYTES_MOST
][::_EVERY]
"""Every sixth of the quick settings without randomness."""
UNEVEN = [setting for _, setting in model.settings() if setting.service_spread_ns and setting.delay_ns == 4e6]
LOSSY = [
    (kind, setting)
    for kind, setting in model.settings()
    if setting.loss == 1e-3 and setting.delay_ns == 4e6 and setting.congestion_control == "reno"
]


# nine rounds of four commands, and one: that alone is the whole run
@pytest.mark.parametrize("count", [36, 4])
def test_throughput_of_few_commands_is_that_of_the_whole_run(count: int) -> None:
    setting = Setting("read", 1000, 1e6, queue_depth=4)
    # each round takes 10 ms, and all four commands of it begin and end together
    begun = [10_000_000 * (number // 4) for number in range(count)]
    truth = {
        "operation": ["read"] * count,
        "bytes": [1000] * count,
        "initiator": {"command_first_ns": begun, "status_ns": [each + 10_000_000 for each in begun]},
    }
    assert model.measured_bytes_per_s(setting, {"cycles": truth}) == pytest.approx(4 * 1000 / 0.01)


def test_the_sample_has_every_kind() -> None:
    even = {kind for kind, setting in model.settings() if not (setting.loss or setting.service_spread_ns)}
    assert {kind for kind, _ in SETTINGS} == even
    assert {setting.delay_ns for _, setting in SETTINGS} == {1e6, 4e6, 16e6}
    assert {setting.queue_depth for _, setting in SETTINGS} >= {1, 4, 8}


@pytest.mark.parametrize(("kind", "setting"), SETTINGS, ids=[f"{kind} {n}" for n, (kind, _) in enumerate(SETTINGS)])
def test_throughput_is_within_three_per_cent(kind: str, setting: Setting) -> None:
    assert abs(model.outcome(kind, setting).error) < 0.03


@pytest.mark.parametrize("setting", UNEVEN, ids=[f"{each.connections}, {each.window_bytes}" for each in UNEVEN])
def test_commands_of_unequal_times_are_within_five_per_cent(setting: Setting) -> None:
    assert abs(model.outcome("", setting).error) < 0.05


def test_commands_of_unequal_times_get_out_of_step() -> None:
    (wide, narrow) = (
        next(each for each in UNEVEN if (each.connections, each.window_bytes) == (8, window))
        for window in (None, 64 << 10)
    )
    for uneven, is_slower in ((wide, True), (narrow, False)):
        even = replace(uneven, service_spread_ns=0.0)
        assert (predict(uneven).throughput_bytes_per_s < predict(even).throughput_bytes_per_s) == is_slower


def test_omitting_a_window_that_never_limits_changes_nothing() -> None:
    for _, setting in SETTINGS:
        if setting.window_bytes is None and not setting.start_window_bytes:
            wide = predict(replace(setting, window_bytes=1 << 30))
            assert wide.throughput_bytes_per_s == pytest.approx(predict(setting).throughput_bytes_per_s)


@pytest.mark.parametrize(("kind", "setting"), LOSSY, ids=[f"{kind} {n}" for n, (kind, _) in enumerate(LOSSY)])
def test_with_losses_throughput_is_within_fifteen_per_cent(kind: str, setting: Setting) -> None:
    found = model.outcome(kind, setting)
    assert found.prediction.bound == "loss"
    assert abs(found.error) < 0.15


def test_mirror_sides_that_wait_for_each_other_are_slower_than_the_slower_alone() -> None:
    (alike,) = [each for kind, each in LOSSY if kind == "losses, mirror" and len(set(each.target_delays_ns)) == 1]
    alone = replace(alike, target_delays_ns=())
    share = predict(alike).throughput_bytes_per_s / predict(alone).throughput_bytes_per_s
    assert 0.8 < share < 0.97
