"""The model beside the simulated world, where nothing but what it knows of takes time: a share of `bench.model`."""

from __future__ import annotations

import pytest

from bench import model
from iscsitrace.analysis.model.prediction import predict
from iscsitrace.analysis.model.setting import Setting

_BYTES_MOST = 26 << 20
_EVERY = 6
SETTINGS = [
    (kind, setting) for kind, setting in model.settings() if model.bytes_moved(setting) <= _BYTES_MOST
][::_EVERY]  # fmt: skip
"""Every sixth of those that are quick."""


def test_the_share_has_some_of_everything() -> None:
    assert {kind for kind, _ in SETTINGS} == {kind for kind, _ in model.settings()}
    assert {setting.delay_ns for _, setting in SETTINGS} == {1e6, 4e6, 16e6}
    assert {setting.queue_depth for _, setting in SETTINGS} >= {1, 4, 8}


@pytest.mark.parametrize(("kind", "setting"), SETTINGS, ids=[f"{kind} {n}" for n, (kind, _) in enumerate(SETTINGS)])
def test_throughput_is_within_three_per_cent(kind: str, setting: Setting) -> None:
    assert abs(model.outcome(kind, setting).error) < 0.03


def test_nothing_is_lost_when_a_window_is_left_out_that_is_never_in_the_way() -> None:
    for _, setting in SETTINGS:
        if setting.window_bytes is None and not setting.start_window_bytes:
            wide = predict(model.replace(setting, window_bytes=1 << 30))
            assert wide.throughput_bytes_per_s == pytest.approx(predict(setting).throughput_bytes_per_s)


@pytest.mark.parametrize("congestion_control", ["reno", "cubic"])
def test_losses_of_one_in_a_thousand_are_within_a_fifth(congestion_control: str) -> None:
    # chance: some thirty losses in each of two runs
    lossy = model.replace(model.PLAIN, loss=0.001, queue_depth=8, delay_ns=1e6, congestion_control=congestion_control)
    found = [model.measured_bytes_per_s(lossy, model.simulate(lossy, seed, total_bytes=48 << 20)) for seed in (1, 2)]
    assert predict(lossy).bound == "loss"
    assert predict(lossy).throughput_bytes_per_s == pytest.approx(sum(found) / len(found), rel=0.2)
