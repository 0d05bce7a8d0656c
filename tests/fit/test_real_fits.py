"""The fit of recorded captures of kernels against what was configured: one-way delays, R2T rounds, delays left out."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.fit.points import Point
from iscsitrace.fit.regression import fit
from iscsitrace.fit.steady import CYCLES_MIN, NEEDED, Survey, survey
from iscsitrace.model.uncertainty import predict_with
from tests.support.recordings import recorded_captures

CAPTURES = recorded_captures()
SERIES = {
    file.name[20:22]: file
    for file in CAPTURES
    if file.name.startswith("01_seqread_qd1_delay") and "tso-off" in file.name and ".target." not in file.name
}
"""Reads of 512 KiB, one at a time, by the configured delay in milliseconds. The hosts are emulated, and slow."""

needs_captures = pytest.mark.skipif(not CAPTURES, reason="no recorded captures")


@functools.cache
def survey_of(file: Path) -> Survey:
    return survey(iscsitrace.read(file, tables=NEEDED).table, file.name)


def points_of(file: Path) -> tuple[Point, ...]:
    return survey_of(file).points


@needs_captures
@pytest.mark.parametrize("file", CAPTURES, ids=lambda file: file.name)
def test_one_command_at_a_time_pays_the_delays_of_its_legs(file: Path) -> None:
    """A read pays 2, a write 2 and 2 for each R2T: no host time is among them."""
    for point in points_of(file):
        if point.seen.k is None or point.setting.is_status_held:
            continue
        rounds = 0
        if point.setting.operation == "write":
            keys = point.setting.solicitation
            unsolicited = min(point.setting.block_bytes, keys.first_burst_bytes) if keys.is_immediate_data else 0
            if keys.is_initial_r2t:
                unsolicited = min(unsolicited, keys.max_recv_data_segment_bytes)
            rounds = -(-(point.setting.block_bytes - unsolicited) // keys.max_burst_bytes)
        assert point.seen.k.value == pytest.approx(2 + 2 * rounds, rel=0.02), point.name


@needs_captures
@pytest.mark.parametrize(
    "file", [each for each in CAPTURES if each.name.startswith("19_rate-limited")], ids=lambda file: file.name
)
def test_c_is_the_estimated_rate_of_a_line_that_had_a_queue(file: Path) -> None:
    """20 Mbit/s carry 1448 bytes of payload in each 1514 bytes of a frame."""
    (row,) = (row for row in iscsitrace.read(file, tables=NEEDED).senders.rows() if row["line_bytes_per_s"])
    found = fit(points_of(file)).c_bytes_per_s
    assert found
    assert (round(found.value), found.source) == (row["line_bytes_per_s"], "line")
    assert (found.low, found.high) == (row["line_low_bytes_per_s"], row["line_high_bytes_per_s"])
    assert found.value == pytest.approx(20e6 / 8 * 1448 / 1514, rel=0.01)


@needs_captures
@pytest.mark.parametrize(
    "file", [each for each in CAPTURES if each.name.startswith("34_shared_line")], ids=lambda file: file.name
)
def test_each_session_of_a_shared_line_has_a_part_of_it(file: Path) -> None:
    result = fit(points_of(file))
    assert {point.seen.is_line_shared for point in result.points} == {True}
    assert sum("shares a line of 3.6 MB/s with other sessions" in line for line in result.undetermined) == 2
    assert all(abs(residual) < 0.1 for residual in result.residuals)


@needs_captures
def test_the_delays_of_the_series_are_found() -> None:
    assert {"00", "04", "08", "16"} <= set(SERIES)


@needs_captures
@pytest.mark.parametrize("left_out", sorted(SERIES))
def test_the_other_delays_predict_the_throughput_of_one(left_out: str, tmp_path: Path) -> None:
    """Within 5 % from 4 ms on; below, where the time is that of the hosts, within the interval."""
    others = [str(file) for delay, file in SERIES.items() if delay != left_out]
    fitted = CliRunner().invoke(main, ["model", "fit", "--json", *others], catch_exceptions=False)
    assert fitted.exit_code == 0, fitted.output
    document = tmp_path / "fit.json"
    document.write_text(fitted.stdout)
    (point,) = points_of(SERIES[left_out])
    delay = f"{point.delay_ns.value:.0f}ns"
    asked = ["model", "predict", "--json", "--fit", str(document), "--one-way-delay", delay]
    (found,) = json.loads(CliRunner().invoke(main, asked, catch_exceptions=False).stdout)["predictions"]
    measured, low, high = (
        point.throughput_bytes_per_s,
        *(found[f"throughput_{end}_bytes_per_s"] for end in ("low", "high")),
    )
    assert low <= measured <= high
    # an interval that says something: up to half and twice
    assert 0.5 * measured < low
    assert high < 2 * measured
    if int(left_out) >= 4:
        assert found["throughput_bytes_per_s"] == pytest.approx(measured, rel=0.05)


@needs_captures
def test_without_a_handshake_the_interval_holds_at_other_delays() -> None:
    """The size of the windows is unknown then, and their waits are part of the service time."""
    whole = {delay: points_of(file)[0] for delay, file in SERIES.items()}
    for delay, file in SERIES.items():
        cycles = iscsitrace.read(file).cycles
        first_ns = min(
            row["command_first_ns"] for row in cycles.rows() if row["bytes"] == whole[delay].setting.block_bytes
        )
        begun = iscsitrace.read(file, tables=NEEDED, time_from_ns=first_ns - 1_000)
        (point,) = survey(begun.table, file.name).points
        assert point.setting.window_bytes is None
        found = fit([point])
        for other in whole.values():
            answer = predict_with(replace(found.setting, delay_ns=other.delay_ns.value), found, {"delay_ns"})
            assert answer.low_bytes_per_s <= other.throughput_bytes_per_s <= answer.high_bytes_per_s


SAME_HOSTS = (
    *(
        "01_seqread_qd1_delay00ms",
        "01_seqread_qd1_delay04ms_tso-off",
        "01_seqread_qd1_delay08ms",
        "01_seqread_qd1_delay16ms",
    ),
    *("02_", "03_seqwrite_256k_delay04ms_defaults", "04_read_ackloss", "06_", "07_", "08_read_control", "08_read_rwnd"),
    *("09_", "15_", "19_asymmetric", "20_"),
)
"""Captures of one target and initiator without digests, jumbo frames or offload: 16 to 512 KiB at 0.4 to 17 ms."""


@needs_captures
def test_what_ifs_of_one_capture_hold_for_the_others() -> None:
    """Each capture predicts all others at once: delay, I/O size, queue depth, connections and window."""
    points = [point for file in CAPTURES if file.name.startswith(SAME_HOSTS) for point in points_of(file)]
    held = []
    for known in points:
        found = fit([known])
        for other in points:
            is_alike = known.setting.solicitation == other.setting.solicitation or known.setting.operation == "read"
            if known is other or known.setting.operation != other.setting.operation or not is_alike:
                continue
            names = ("block_bytes", "delay_ns", "queue_depth", "connections", "window_bytes")
            values = {name: getattr(other.setting, name) for name in names}
            answer = predict_with(replace(found.setting, **values), found, values)
            held.append(answer.low_bytes_per_s <= other.throughput_bytes_per_s <= answer.high_bytes_per_s)
    assert len(held) > 250
    assert sum(held) / len(held) >= 0.9


@needs_captures
@pytest.mark.parametrize("file", [each for each in CAPTURES if each.name.startswith("04_")], ids=lambda file: file.name)
def test_a_lossy_capture_has_a_fit_of_its_steady_commands_or_a_reason(file: Path) -> None:
    found = survey_of(file)
    if found.points:
        result = fit(found.points)
        assert result.cycles_used >= CYCLES_MIN
        return
    (missing,) = found.missing
    assert "too few of them steady: a fit needs 2 of one I/O size (" in missing.why
    assert "lossy: packets were lost, or the window was still small after a loss" in missing.why
