"""The write study at a few of its points: model against simulation, counts of R2Ts, and the effect of tuning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.lab import simulation
from iscsitrace.lab.settings import structs as settings
from iscsitrace.model.cycle import legs
from iscsitrace.studies import definition, expected, measured
from iscsitrace.studies.points import DesignPoint, of_experiment

STANDARD, TCP_TUNED, ALL_TUNED = "standard", "TCP tuned", "TCP and iSCSI tuned"
SOCKET = "socket, TCP tuned"
DELAYS = ("5ms", "50ms")
R2TS = {STANDARD: 2, TCP_TUNED: 2, ALL_TUNED: 0}
"""R2Ts per command of 128 KiB: solicited in bursts of 64 KiB, or unsolicited."""
COMMANDS_PER_CALL = 80


@dataclass(frozen=True)
class Outcome:
    """Results of a point; throughputs in bytes/s."""

    measured: float
    model: float | None
    legs: dict[str, float]
    r2t_counts: set[int]
    command_count: int


def outcome(point: DesignPoint, folder: Path) -> Outcome:
    """Results of a point with one call of warm-up and one measured call."""
    values: dict[str, Any] = point.values | {"workload.calls": 2}
    truth = simulation.run(settings.of_run(values, point.repeat), folder, lambda *_: False)
    found = truth["results"]
    if found["mode"] == "socket":
        return Outcome(found["steady_bytes_per_s"], None, {}, set(), 0)
    keys = found["connections"][0]["parameters"]
    setting = expected.setting_of(values, keys)
    prediction = expected.of_point(values, keys)
    assert setting is not None
    assert prediction is not None
    cycles = iscsitrace.read(folder / "initiator.pcapng").cycles
    writes = cycles.select(cycles["operation"] == "write")
    stretch = measured.steady_stretch(truth, values, 1)
    return Outcome(
        stretch.throughput_bytes_per_s,
        prediction.throughput_bytes_per_s,
        {leg.name: leg.delays for leg in legs(setting)},
        set(writes["r2t_count"].tolist()),
        len(writes),
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Outcome]:
    """Results by arm and delay, without losses."""
    points = of_experiment(definition.load("write-study"), "simulated")
    chosen = {
        (point.arm, point.grid["link.one-way-delay"].text): point
        for point in points
        if point.grid["link.loss"].text == "0%" and point.arm in {*R2TS, SOCKET}
    }
    return {
        (arm, delay): outcome(point, tmp_path_factory.mktemp("run"))
        for (arm, delay), point in chosen.items()
        if delay in DELAYS
    }


Outcomes = dict[tuple[str, str], Outcome]


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("arm", R2TS)
def test_the_model_predicts_the_measurement(outcomes: Outcomes, arm: str, delay: str) -> None:
    found = outcomes[arm, delay]
    assert found.model == pytest.approx(found.measured, rel=0.05)


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("arm", R2TS)
def test_r2t_rounds_follow_from_the_keys(outcomes: Outcomes, arm: str, delay: str) -> None:
    found = outcomes[arm, delay]
    assert found.command_count == 2 * COMMANDS_PER_CALL
    assert found.r2t_counts == {R2TS[arm]}
    assert found.legs.get("r2t", 0) == R2TS[arm]


def test_small_buffers_carry_one_window_per_rtt(outcomes: Outcomes) -> None:
    """Minus PDU headers, partial segments at the end of a window, and waits for R2Ts and the last status."""
    cap = (128 << 10) / 0.1
    assert 0.9 * cap < outcomes[STANDARD, "50ms"].measured < cap
    assert outcomes[TCP_TUNED, "50ms"].measured > 5 * cap


def test_tuned_keys_increase_the_throughput_of_tuned_tcp(outcomes: Outcomes) -> None:
    """In the study by about 1.8 MB/s; here by little at a short RTT and by more than that at a long one."""
    near, far = (outcomes[ALL_TUNED, delay].measured - outcomes[TCP_TUNED, delay].measured for delay in DELAYS)
    assert 0 < near < 1.8e6 < far < 3.5e6


@pytest.mark.parametrize("delay", DELAYS)
def test_a_socket_stays_as_fast_as_the_line(outcomes: Outcomes, delay: str) -> None:
    assert outcomes[SOCKET, delay].measured == pytest.approx(100e6 / 8 * 1448 / 1514, rel=0.01)
