"""The read study: a system call whose commands go one after another, some at a time or at once; packets of a cycle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.lab import simulation
from iscsitrace.lab.settings import structs as settings
from iscsitrace.studies import definition, expected, measured
from iscsitrace.studies.points import DesignPoint, of_experiment

KIB = 1024
DELAY_NS = 4_000_000
LINE = 351e6 / 8 * 1448 / 1514
"""Bytes per second of the stream: 1448 bytes of it in frames of 1514."""
HEADER_BYTES = 48


def place(arm: str, status: str, delay: str) -> DesignPoint:
    made = of_experiment(definition.load("read-study"), "simulated")
    (found,) = [
        point
        for point in made
        if (point.arm, point.grid["target.status"].text, point.grid["link.one-way-delay"].text) == (arm, status, delay)
    ]
    return found


@dataclass(frozen=True)
class Outcome:
    """Seconds per system call, measured and by the model."""

    measured_s: float
    model_s: float | None
    packets: float | None


def outcome(folder: Path, point: DesignPoint, **changed: Any) -> Outcome:
    """A run of a point with ten calls, of which four count."""
    values: dict[str, Any] = point.values | {"workload.calls": 10}
    values |= {name.replace("__", ".").replace("_", "-"): value for name, value in changed.items()}
    truth = simulation.run(settings.of_run(values, 0), folder, lambda *_: False, capture_at=("initiator",))
    prediction = expected.of_point(values, truth["results"]["connections"][0]["parameters"])
    stretch = measured.steady_stretch(truth, values, 6)
    trace = iscsitrace.read(folder / "initiator.pcapng")
    size = settings.call_bytes(values)
    return Outcome(
        size / stretch.throughput_bytes_per_s,
        None if prediction is None else size / prediction.throughput_bytes_per_s,
        measured.packets_per_command(trace.cycles, stretch),
    )


@pytest.mark.parametrize(("status", "delays"), [("in-data", 2), ("apart-held", 4)])
def test_commands_one_after_another_pay_the_delays_of_each(tmp_path: Path, status: str, delays: int) -> None:
    found = outcome(tmp_path, place("default initiator", status, "4ms"))
    data_s = (500 * KIB + 4 * HEADER_BYTES) / LINE
    assert found.model_s == pytest.approx(4 * delays * DELAY_NS / 1e9 + data_s, rel=1e-6)
    assert found.measured_s == pytest.approx(found.model_s, rel=0.003)


def test_commands_at_once_share_the_delays(tmp_path: Path) -> None:
    found = outcome(tmp_path, place("four commands at once", "in-data", "4ms"))
    assert found.model_s == pytest.approx(2 * DELAY_NS / 1e9 + (500 * KIB + 4 * HEADER_BYTES) / LINE, rel=1e-6)
    assert found.measured_s == pytest.approx(found.model_s, rel=0.003)


def test_the_last_command_of_a_call_may_be_alone(tmp_path: Path) -> None:
    """Three of four commands at a time: the fourth is sent when the first is done, and the call waits for it."""
    found = outcome(tmp_path, place("four commands at once", "in-data", "16ms"), target__command_window=3)
    # two round trips; the data of the first and of the last command are waited for
    waited_s = 4 * 0.016 + 2 * (125 * KIB + HEADER_BYTES) / LINE
    assert found.measured_s == pytest.approx(waited_s, rel=0.03)
    assert found.model_s == pytest.approx(found.measured_s, rel=0.03)


def test_held_statuses_of_some_commands_at_a_time_are_not_predicted(tmp_path: Path) -> None:
    at_once = place("four commands at once", "apart-held", "4ms")
    assert outcome(tmp_path, at_once, target__command_window=3).model_s is None
    # a window that all of them fit in is no limit
    predicted = [expected.of_point(at_once.values | {"target.command-window": count}, {}) for count in (4, 5)]
    assert predicted == [expected.of_point(at_once.values, {})] * 2
    # without a split a full window is a queue depth
    whole = place("125K", "apart-held", "4ms").values | {"workload.queue-depth": 8, "target.command-window": 3}
    assert expected.of_point(whole, {}) == expected.of_point(whole | {"workload.queue-depth": 3}, {})


def test_a_cycle_of_127_5_kb_has_91_packets_with_data(tmp_path: Path) -> None:
    """130,608 bytes in segments of 1448, as printed in the study's figure 4; not the command, and not the status."""
    size = 255 * KIB // 2
    assert -(-(size + HEADER_BYTES) // 1448) == 91
    for status in ("apart-held", "in-data"):
        found = outcome(tmp_path / status, place("125K", status, "8ms"), workload__block_size=size)
        assert found.packets == 91
    # the mean size of the default initiator's commands has two segments less
    assert outcome(tmp_path / "mean", place("125K", "apart-held", "8ms")).packets == 89
