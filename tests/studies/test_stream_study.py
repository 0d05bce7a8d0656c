"""The stream study at a few points, shortened: why one stream is slow at a long RTT, and the effect of a timeout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from iscsitrace.lab import simulation
from iscsitrace.lab.settings import structs as settings
from iscsitrace.studies import definition, expected, measured
from iscsitrace.studies.points import DesignPoint, of_experiment
from iscsitrace.tables.trace import TraceTables

ONE, WITHOUT_SACK = "one stream", "one file, two streams, without SACK"
SECONDS = {"0ms": 1.5, "50ms": 4, "100ms": 6}
"""Duration of one stream by its one-way delay."""
SECOND_NS = 1_000_000_000
FULL_BYTES, EMPTY_BYTES = 500_000, 10_000
"""Bytes in flight of a sender that fills its window, and of one that restarts."""


def of_arm(arm: str) -> list[DesignPoint]:
    return [point for point in of_experiment(definition.load("stream-study"), "simulated") if point.arm == arm]


def run(
    point: DesignPoint, folder: Path, capture_at: tuple[str, ...], **changes: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Truth and values of a point, with other settings of its workload."""
    values = point.values | {f"workload.{name}": value for name, value in changes.items()}
    made = settings.of_run(values, point.run_settings["world"]["seed"])
    return simulation.run(made, folder, lambda *_: False, capture_at=capture_at), values


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, float]]:
    """Bytes/s of one stream by its one-way delay: in the last second, after slow start, and by the model."""
    found = {}
    for point in of_arm(ONE):
        delay = point.grid["link.one-way-delay"].text
        if delay not in SECONDS:
            continue
        truth, values = run(point, tmp_path_factory.mktemp("one"), (), seconds=SECONDS[delay])
        model = expected.of_point(values, truth["results"]["connections"][0]["parameters"])
        assert model is not None
        found[delay] = (
            measured.timed_stretch(truth, values, SECONDS[delay] - 1).throughput_bytes_per_s,
            model.throughput_bytes_per_s,
        )
    return found


Rates = dict[str, tuple[float, float]]


def test_at_a_short_rtt_one_stream_has_the_throughput_of_its_disk(rates: Rates) -> None:
    assert rates["0ms"][0] == pytest.approx(65_536 / 3.5e-3, rel=0.01)


@pytest.mark.parametrize(("delay", "round_trip_s"), [("50ms", 0.1), ("100ms", 0.2)])
def test_at_a_long_rtt_one_stream_has_its_queue_depth_per_rtt(rates: Rates, delay: str, round_trip_s: float) -> None:
    # and what the disk and the line take for one of them
    one_s = 3.5e-3 + 65_536 * 1514 / 1448 * 8 / 602.2e6
    assert rates[delay][0] == pytest.approx(16 * 65_536 / (round_trip_s + one_s), rel=0.035)


def test_the_study_has_the_same_ratio(rates: Rates) -> None:
    assert rates["100ms"][0] / rates["0ms"][0] == pytest.approx(0.28, abs=0.01)


@pytest.mark.parametrize("delay", ["0ms", "50ms", "100ms"])
def test_the_model_predicts_the_measurement(rates: Rates, delay: str) -> None:
    found, model = rates[delay]
    assert model == pytest.approx(found, rel=0.05)


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], TraceTables]:
    """A tenth of the file over two streams without SACK, and its capture."""
    folder = tmp_path_factory.mktemp("lost")
    truth, _ = run(of_arm(WITHOUT_SACK)[0], folder, ("initiator",), bytes=20 << 20)
    return truth, iscsitrace.read(folder / "initiator.pcapng", tables=("window", "retransmissions"))


def test_bytes_in_flight_collapse_at_a_timeout(lost: tuple[dict[str, Any], TraceTables]) -> None:
    truth, trace = lost
    counts = [end["timeout_count"] for ends in truth["target_ends"] for end in ends]
    assert sum(counts) > 0
    window, again = trace.window, trace.retransmissions
    timeouts = [row for row in again.rows() if row["cause"] == "timeout" and not row["to_target"]]
    # what follows a timeout may be retransmitted in its recovery
    first = {row["connection"]: row for row in reversed(timeouts)}
    assert first
    for row in first.values():
        assert counts[row["connection"]] > 0
        of_it = (window.raw("connection") == row["connection"]) & ~window.raw("to_target")
        since_ns = window.raw("time_ns")[of_it] - row["time_ns"]
        owin = window.raw("owin_bytes")[of_it]
        assert owin[(since_ns > -3 * SECOND_NS) & (since_ns < 0)].max() > FULL_BYTES
        assert owin[(since_ns > 0) & (since_ns < 2 * SECOND_NS)].min() < EMPTY_BYTES


def test_without_sack_each_hole_takes_an_rtt(lost: tuple[dict[str, Any], TraceTables]) -> None:
    truth, trace = lost
    counts = [end["timeout_count"] for ends in truth["target_ends"] for end in ends]
    # of the stream without a timeout
    connection = counts.index(0)
    again = trace.retransmissions
    times_ns = again.raw("time_ns")[(again.raw("connection") == connection) & ~again.raw("to_target")]
    resent = truth["target_ends"][connection][0]["retransmitted_segment_count"]
    assert len(times_ns) == resent > 30
    gaps_s = np.diff(np.sort(times_ns)) / SECOND_NS
    assert np.median(gaps_s) == pytest.approx(0.2, abs=0.01)
