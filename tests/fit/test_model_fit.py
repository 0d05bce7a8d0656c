"""The fit, on points with known parameters, and on simulated runs with known delays, rate and service time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iscsitrace
from bench.budget.cases import Case, line_ns
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid
from iscsitrace.fit import robust
from iscsitrace.fit.points import Fit, Point, Seen
from iscsitrace.fit.regression import fit
from iscsitrace.fit.steady import NEEDED, points
from iscsitrace.lab import simulation
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Setting, Solicitation
from iscsitrace.model.uncertainty import Estimate
from tests.support.tables_by_hand import MS

KIB = 1 << 10
C = 40e6
HEADERS = 2e-4
"""Larger than the time of PDU headers in a period: the prediction includes them, the points made here do not."""


def point(
    delay_ms: float,
    *,
    k: float = 4.0,
    s_ms: float = 0.3,
    c: float = C,
    block_bytes: int = 128 * KIB,
    error: float = 0.0,
    spread: float = 0.001,
    **of_setting: Any,
) -> Point:
    """A point computed by the formula; ``error`` is its deviation, as a share."""
    setting = Setting("read", block_bytes, delay_ms * MS, c, service_ns=s_ms * MS, is_status_held=k > 3)
    setting = replace(setting, **of_setting)
    period_ns = (k * delay_ms * MS + s_ms * MS + block_bytes / c * 1e9) * (1 + error)
    queued = setting.queue_depth > 1

    def seen(value: float) -> Estimate:
        return Estimate(value, 0.99 * value, 1.01 * value, "packets")

    return Point(
        session=0,
        name=f"{delay_ms} ms",
        setting=setting,
        period_ns=period_ns,
        period_spread_ns=spread * period_ns,
        throughput_bytes_per_s=block_bytes * setting.queue_depth / period_ns * 1e9,
        cycle_count=100,
        left_out={"slow_start": 2},
        parts_ns={},
        delay_ns=seen(delay_ms * MS),
        seen=Seen(
            bound="cycle",
            k=None if queued else seen(k),
            service_ns=None if queued else seen(s_ms * MS),
            transfer_ns=seen(block_bytes / c * 1e9),
            stall_ns=0.0,
            legs=(),
        ),
    )


# --- the arithmetic


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)]
)
def test_quantiles_of_student_equal_published_tables(freedom: int, quantile: float) -> None:
    assert robust.student_975(freedom) == pytest.approx(quantile, rel=0.002)


def test_the_error_of_a_mean() -> None:
    drawn = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        values = drawn.normal(20, 1, 25)
        given = robust.weights(values)
        half = robust.student_975(24) * robust.standard_error(values, given)
        covered += abs(float(np.average(values, weights=given)) - 20) <= half
    assert 0.9 <= covered / 200 <= 0.99


def test_values_in_two_clusters_are_no_outliers() -> None:
    values = np.array([20.0] * 60 + [60.0] * 40)
    assert np.average(values, weights=robust.weights(values)) == pytest.approx(36, rel=0.1)


_REAL = st.floats(0.1, 10)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_REAL, st.floats(0, 10), _REAL, st.lists(st.floats(0.1, 20), min_size=3, max_size=6, unique=True))
def test_exact_points_give_the_true_parameters(k: float, s_ms: float, c_mb: float, delays: list[float]) -> None:
    if max(delays) < 2 * min(delays):
        delays = [*delays, 3 * max(delays)]
    # held or not, by k: the setting's legs say what a whole number would be
    made = [
        point(delay, k=2 + k / 10, s_ms=s_ms, c=c_mb * 1e7, block_bytes=size)
        for delay in delays
        for size in (64 * KIB, 1024 * KIB)
    ]
    found = fit(made)
    assert found.c_bytes_per_s
    assert found.k.value == pytest.approx(2 + k / 10, rel=1e-4)
    assert found.s_ns.value == pytest.approx(s_ms * MS, abs=1e-4 * max(each.period_ns for each in made))
    assert found.c_bytes_per_s.value == pytest.approx(c_mb * 1e7, rel=1e-3)
    assert max(map(abs, found.residuals)) < HEADERS


def test_intervals_contain_the_truth_at_their_confidence_level() -> None:
    """Cycles scatter by 2 % of the period, runs by a tenth of the hosts' 2 ms."""
    drawn = np.random.default_rng(17)
    delays, runs = (1, 2, 4, 8, 16), 200
    covered = np.zeros(3)

    def off(delay: float, size: int) -> float:
        hosts = 0.1 * 2 / (4 * delay + 2 + size / C * 1e3)
        return float(drawn.normal(0, 0.02) + drawn.normal(0, hosts))

    for _ in range(runs):
        made = [
            point(delay, block_bytes=size, error=off(delay, size), spread=0.02, s_ms=2)
            for delay in delays
            for size in (64 * KIB, 512 * KIB)
        ]
        found = fit(made)
        assert found.c_bytes_per_s
        pairs = ((found.k, 4), (found.s_ns, 2 * MS), (found.c_bytes_per_s, C))
        covered += [estimate.low <= truth <= estimate.high for estimate, truth in pairs]
    assert all(0.9 <= share < 1 for share in covered / runs), covered / runs


def test_intervals_contain_the_truth_if_points_scatter_more_than_their_cycles() -> None:
    drawn = np.random.default_rng(8)
    covered, runs = 0, 100
    for _ in range(runs):
        made = [point(delay, error=float(drawn.normal(0, 0.03)), spread=0.0001) for delay in (1, 2, 4, 8, 16)]
        found = fit(made)
        covered += found.k.low <= 4 <= found.k.high
    assert 0.87 <= covered / runs < 1


def test_an_outlier_has_little_influence() -> None:
    made = [point(delay, error=0.5 * (delay == 4)) for delay in (1, 2, 3, 4, 6, 8, 12, 16)]
    found = fit(made)
    assert found.k.value == pytest.approx(4, rel=0.02)
    assert found.residuals[3] == pytest.approx(0.5, abs=0.03)


# --- parameters that the points cannot determine, and their replacements


def test_one_delay_and_one_block_use_the_packets() -> None:
    found = fit([point(4), point(4)])
    assert [each.source for each in (found.k, found.s_ns)] == ["packets", "packets"]
    assert found.k.value == pytest.approx(4)
    assert [line.split(":")[0] for line in found.undetermined] == ["k from s", "s from B / C"]
    assert found.residuals == pytest.approx((0, 0), abs=HEADERS)


def test_two_delays_separate_k_from_s() -> None:
    found = fit([point(4), point(8)])
    assert [each.source for each in (found.k, found.s_ns)] == ["fit", "fit"]
    assert found.c_bytes_per_s
    assert found.c_bytes_per_s.source == "packets"
    assert [line.split(":")[0] for line in found.undetermined] == ["s from B / C"]


def test_two_block_sizes_separate_s_from_c() -> None:
    found = fit([point(4), point(4, block_bytes=1024 * KIB)])
    assert found.k.source == "packets"
    assert found.c_bytes_per_s
    assert found.c_bytes_per_s.source == "fit"
    assert found.c_bytes_per_s.value == pytest.approx(C)
    assert [line.split(":")[0] for line in found.undetermined] == ["k from s"]


def test_delays_that_hardly_differ_determine_nothing() -> None:
    assert fit([point(4), point(4.01)]).k.source == "packets"


def test_a_socket_gives_c_at_each_delay() -> None:
    carried = {1: 40e6, 8: 28e6, 16: 19.5e6}
    # the packets show the line rate
    made = [replace(point(delay, c=c, window_bytes=64 * KIB), seen=point(delay).seen) for delay, c in carried.items()]
    found = fit(made, list(carried.values()))
    assert found.c_bytes_per_s == Estimate(28e6, 19.5e6, 40e6, "given")
    assert found.setting.window_bytes is None
    assert found.k.value == pytest.approx(4)
    assert max(map(abs, found.residuals)) < HEADERS


def test_packets_without_a_line_rate_leave_c_unknown() -> None:
    made = [replace(each, seen=replace(each.seen, transfer_ns=Estimate.exact(0.0, "packets"))) for each in [point(4)]]
    found = fit(made)
    assert found.c_bytes_per_s is None
    assert any(line.startswith("C: ") for line in found.undetermined)
    assert json.loads(json.dumps(found.as_dict()))["c_bytes_per_s"] is None


def test_for_a_queue_k_is_assumed_and_s_is_the_rest() -> None:
    found = fit([point(4, k=2, s_ms=3, queue_depth=4)])
    assert (found.k.value, found.k.source) == (2, "assumed")
    assert found.s_ns.value == pytest.approx(3 * MS)


def test_a_full_line_determines_only_c() -> None:
    made = point(1, k=2, queue_depth=8)
    full = replace(
        made,
        period_ns=8 * made.seen.transfer_ns.value,
        seen=replace(made.seen, bound="line"),
    )
    found = fit([full])
    assert found.c_bytes_per_s
    assert found.c_bytes_per_s.value == pytest.approx(C)
    assert (found.k.source, found.s_ns.source) == ("assumed", "assumed")
    assert found.residuals[0] == pytest.approx(0, abs=HEADERS)


def test_a_slow_receiver_determines_its_rate() -> None:
    made = point(4, k=2, queue_depth=4)
    lagging = replace(made.seen, bound="receiver", transfer_ns=Estimate.exact(128 * KIB / 8e6 * 1e9, "packets"))
    period_ns = 4 * lagging.transfer_ns.value
    found = fit([replace(made, seen=lagging, period_ns=period_ns)])
    assert found.c_bytes_per_s
    assert found.c_bytes_per_s.value == pytest.approx(8e6)
    assert found.residuals[0] == pytest.approx(0, abs=HEADERS)
    assert any("windows keep the sender waiting" in line for line in found.undetermined)


def test_window_waits_beyond_its_size_are_attributed_to_the_hosts() -> None:
    made = point(4, k=2, window_bytes=1 << 20)
    found = fit([replace(made, period_ns=made.period_ns + 6 * MS, seen=replace(made.seen, stall_ns=6 * MS))])
    assert found.s_ns.value == pytest.approx(6.3 * MS, rel=0.001)
    assert any(line.startswith("windows: 6.0 ms per command of 4 ms are not explained") for line in found.undetermined)


def test_with_points_that_scatter_too_much_k_comes_from_the_packets() -> None:
    made = [point(4), point(6, error=-0.3), point(8, error=0.3), point(10)]
    found = fit(made)
    assert found.k.source == "packets"
    assert found.k.value == pytest.approx(4)


def test_a_single_point_has_no_residual() -> None:
    assert any(line.startswith("residuals: ") for line in fit([point(4)]).undetermined)
    assert not any(line.startswith("residuals: ") for line in fit([point(4), point(8)]).undetermined)


def test_writes_with_different_r2t_rounds_share_one_model() -> None:
    keys = Solicitation(is_immediate_data=False, max_burst_bytes=64 * KIB)
    made = [
        point(delay, k=2 + 2 * rounds, block_bytes=rounds * 64 * KIB, operation="write", solicitation=keys)
        for delay in (2, 8)
        for rounds in (1, 4)
    ]
    found = fit([*made, replace(made[-1], cycle_count=500)])
    assert found.k_of_legs == 10
    assert found.k.value == pytest.approx(10)
    assert max(map(abs, found.residuals)) < HEADERS


@pytest.mark.parametrize(
    ("made", "socket", "why"),
    [
        ([], None, "no steady cycles"),
        ([point(4), point(4, operation="write")], None, "reads and writes"),
        ([point(4)], [1.0, 2.0], "one for each"),
        ([point(4)], 0.0, "more than 0"),
    ],
)
def test_points_that_cannot_be_fitted_are_reported(made: list[Point], socket: Any, why: str) -> None:
    with pytest.raises(InputInvalid, match=why):
        fit(made, socket)


# --- simulated runs

READ_BYTES, WRITE_BYTES = 126 * KIB, 256 * KIB
"""Even numbers of segments: an odd one waits for a delayed ACK."""
RUNS: dict[str, dict[str, Any]] = {
    **{f"held {delay} ms": {"delay_ms": float(delay), "status": "apart_held"} for delay in (1, 2, 4, 8, 16)},
    "in data": {"delay_ms": 4.0},
    "service": {"delay_ms": 4.0, "service_ns": 3 * MS},
    "writes": {"delay_ms": 4.0, "operation": "write", "block_bytes": WRITE_BYTES, "burst_bytes": 64 * KIB},
    "losses": {"delay_ms": 4.0, "loss": 0.001, "total_bytes": 16 << 20},
    "window": {"delay_ms": 8.0, "block_bytes": 512 * KIB, "window_bytes": 64 * KIB},
    "bulk": {"delay_ms": 4.0, "queue_depth": 8, "block_bytes": 256 * KIB, "total_bytes": 16 << 20},
    "queue": {"delay_ms": 4.0, "queue_depth": 8, "block_bytes": 16 * KIB},
}

Files = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The capture of a run at a tap; runs are made once."""
    folder = tmp_path_factory.mktemp("runs")

    def find(name: str, tap: str) -> Path:
        own = folder / name.replace(" ", "-")
        if not own.exists():
            own.mkdir()
            asked: dict[str, Any] = {"operation": "read", "queue_depth": 1, "block_bytes": READ_BYTES}
            asked |= {"total_bytes": 4 << 20} | RUNS[name]
            simulation.run(Case(kind=name, **asked).settings(is_logging_packets=False), own, lambda *_: False)
        return own / f"{tap}.pcapng"

    return find


def found_in(*captures: Path) -> Fit:
    return fit(
        [each for capture in captures for each in points(iscsitrace.read(capture, tables=NEEDED).table, capture.name)]
    )


def c_of_line(block_bytes: int) -> float:
    """The payload rate of the link."""
    return block_bytes / line_ns(block_bytes) * 1e9


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize(
    ("name", "k", "s_ms", "delay_ms", "block_bytes"),
    [
        ("held 4 ms", 4, 0, 4, READ_BYTES),
        ("held 16 ms", 4, 0, 16, READ_BYTES),
        ("in data", 2, 0, 4, READ_BYTES),
        ("service", 2, 3, 4, READ_BYTES),
        ("writes", 2 + 2 * 4, 0, 4, WRITE_BYTES),
        ("window", 2, 0, 8, 512 * KIB),
        ("queue", 2, 0, 4, 16 * KIB),
    ],
)
def test_one_capture_gives_the_set_parameters(
    files: Files, tap: str, name: str, k: float, s_ms: float, delay_ms: float, block_bytes: int
) -> None:
    found = found_in(files(name, tap))
    assert found.k.value == pytest.approx(k, rel=0.02)
    assert found.k_of_legs == k
    assert found.d_ns.value == pytest.approx(delay_ms * MS, rel=0.01)
    assert found.s_ns.value == pytest.approx(s_ms * MS, rel=0.05, abs=0.05 * MS)
    assert found.c_bytes_per_s
    assert found.c_bytes_per_s.value == pytest.approx(c_of_line(block_bytes), rel=0.02)
    assert found.points[0].setting.is_status_held == name.startswith("held")
    assert max(map(abs, found.residuals)) < 0.01


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_the_delays_in_each_part_of_a_cycle_are_measured(files: Files, tap: str) -> None:
    legs = {leg.name: round(leg.delays, 1) for leg in found_in(files("writes", tap)).legs}
    rounds = {"command to R2T": 2.0, "R2T to data": 6.0, "data to status": 2.0}
    assert legs == (rounds if tap == "initiator" else {"R2T to data": 8.0, "status to command": 2.0})


def test_a_fit_of_two_delays_predicts_three_others(files: Files) -> None:
    found = found_in(files("held 1 ms", "initiator"), files("held 4 ms", "target"))
    assert found.k.source == "fit"
    assert found.k.value == pytest.approx(4, rel=0.02)
    assert found.k.low <= 4 <= found.k.high
    for delay in (2, 8, 16):
        setting = replace(found.setting, delay_ns=delay * MS)
        predicted = predict(setting, k_factor=found.k.value / found.k_of_legs)
        (other,) = points(iscsitrace.read(files(f"held {delay} ms", "initiator"), tables=NEEDED).table, "other")
        assert predicted.throughput_bytes_per_s == pytest.approx(other.throughput_bytes_per_s, rel=0.03)
        assert predicted.period_ns == pytest.approx(other.period_ns, rel=0.03)


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_lossy_and_slow_cycles_are_left_out(files: Files, tap: str) -> None:
    found = found_in(files("losses", tap))
    assert found.cycles_left_out["lossy"] > 10
    assert found.cycles_left_out["slow_start"] >= 1
    assert found.points[0].period_ns == pytest.approx(8 * MS + line_ns(READ_BYTES), rel=0.01)


@pytest.mark.parametrize(
    ("link", "targets"),
    [("--rate 320Mbit", ()), ("--rate 1Gbit --set access-rate=320Mbit", (1.0, 10.0))],
    ids=["a line each", "a shared line"],
)
def test_a_mirrored_write_takes_as_long_as_its_slowest_side(
    tmp_path: Path, link: str, targets: tuple[float, ...]
) -> None:
    asked = "simulate write --target-delay 1ms --target-delay 10ms --set mirror=yes --bytes 8M --block-size 512K "
    made = CliRunner().invoke(main, [*asked.split(), *link.split(), "-o", str(tmp_path / "run")])
    assert made.exit_code == 0, made.output
    found = found_in(tmp_path / "run" / "initiator.pcapng")
    assert len(found.points) == 1
    assert found.points[0].name.endswith("mirrored with 1 nearer target")
    assert found.d_ns.value == pytest.approx(10 * MS, rel=0.01)
    assert [round(delay / MS) for delay in found.setting.target_delays_ns] == list(targets)
    # one R2T round for the data beyond the first burst
    assert found.k.value == pytest.approx(4, rel=0.02)
    assert found.s_ns.value == pytest.approx(0, abs=0.05 * MS)


# --- the command


def test_a_prediction_starts_from_a_fit(files: Files, tmp_path: Path) -> None:
    document = tmp_path / "fit.json"
    document.write_text(fit_of("--json", files("held 1 ms", "initiator"), files("held 4 ms", "initiator")).stdout)
    asked = ["model", "predict", "--fit", str(document), "--one-way-delay", "8ms", "--json"]
    result = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert result.exit_code == 0
    (other,) = points(iscsitrace.read(files("held 8 ms", "initiator"), tables=NEEDED).table, "other")
    predicted = json.loads(result.stdout)["predictions"][0]
    assert predicted["throughput_bytes_per_s"] == pytest.approx(other.throughput_bytes_per_s, rel=0.03)


def fit_of(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["model", "fit", *map(str, arguments)], catch_exceptions=False)


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the lines below a heading, to the next empty line."""
    lines = text.split(f"\n{heading}\n")[1].split("\n\n", maxsplit=1)[0].splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def test_the_text_shows_fitted_and_unknown_parameters(files: Files) -> None:
    result = fit_of(files("held 1 ms", "initiator"), files("held 4 ms", "initiator"))
    assert result.exit_code == 0
    heading = next(line for line in result.stdout.splitlines() if line.startswith("period = k * d + s + B / C, from "))
    assert heading.endswith(" commands at 2 points")
    parameters = {row[0].strip(): row for row in rows(result.stdout, heading)}
    assert parameters["k"][1:3] == ["one-way delays per command; 4 from its parts", "4.00"]
    assert parameters["k"][-1] == "differences between points"
    assert parameters["d"][-1] == "packets of the commands"
    assert re.fullmatch(r"one-way delay; median of 1\.00\d to 4\.00\d ms", parameters["d"][1])
    assert parameters["C"][-1] == "queue of the line"
    senders = [
        row
        for name in ("held 1 ms", "held 4 ms")
        for row in iscsitrace.read(files(name, "initiator"), tables=["senders"]).senders.rows()
        if row["line_bytes_per_s"]
    ]
    assert parameters["C"][1].endswith(f"median of {sum(row['line_stretch_count'] for row in senders)} stretches")
    legs = rows(result.stdout, "Parts of k in one-way delays, measured from the packets")
    assert [row[:2] for row in legs[1:]] == [["command to data", "2.00"], ["data to status", "2.00"]]
    measured = rows(result.stdout, "Points: measured period and period of the model")
    assert [round(float(row[0]), 2) for row in measured[1:3]] == [1.0, 4.0]
    assert "- k from s: " not in result.stdout
    # the line shows C apart from s
    assert "- s from B / C: " not in result.stdout


def test_the_document_has_stable_names(files: Files) -> None:
    result = fit_of("--json", files("held 4 ms", "initiator"))
    document = json.loads(result.stdout)
    assert document["schema"]
    assert document["input"][0]["format"] == "pcapng"
    assert document["k"]["value"] == pytest.approx(4, rel=0.02)
    assert set(document["k"]) == {"value", "low", "high", "source"}
    assert document["d_ns"]["value"] == pytest.approx(4 * MS, rel=0.01)
    assert document["cycles_used"] == document["residuals"][0]["cycle_count"]
    assert document["setting"]["block_bytes"] == READ_BYTES
    assert document["setting"]["is_status_held"] is True
    assert {"s_ns", "c_bytes_per_s", "cycles_left_out", "undetermined", "legs", "k_of_legs"} <= set(document)


def test_a_socket_is_given_as_a_rate_or_a_capture(files: Files) -> None:
    capture = files("in data", "initiator")
    by_rate = json.loads(fit_of("--json", "--socket", "304Mbit", capture).stdout)
    assert by_rate["c_bytes_per_s"] == {"value": 38e6, "low": 38e6, "high": 38e6, "source": "given"}
    # a queue that is kept filled carries what a plain transfer does
    of_capture = json.loads(fit_of("--json", "--socket", files("bulk", "initiator"), capture).stdout)
    assert of_capture["c_bytes_per_s"]["source"] == "given"
    assert of_capture["c_bytes_per_s"]["value"] == pytest.approx(c_of_line(256 * KIB), rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--operation", "write"], "no steady write"),
        (["--socket", "missing.pcap"], "missing.pcap"),
        (["--socket", "0Mbit"], "'0Mbit' is not a rate"),
        (["--socket", "1Mbit", "--socket", "2Mbit"], "one rate, or captures"),
    ],
)
def test_an_impossible_request_is_a_one_line_error(files: Files, arguments: Sequence[str], why: str) -> None:
    result = fit_of(*arguments, files("in data", "initiator"))
    assert result.exit_code == 2
    assert why in result.stderr
    assert len(result.stderr.splitlines()) <= 4


def test_nothing_to_fit_is_a_one_line_error(tmp_path: Path) -> None:
    # no block of 360 packets comes through without a loss, and there are too few losses for their rate
    lossy = ["--block-size", "512K", "--bytes", "1M", "--one-way-delay", "8ms", "--set", "to-initiator-loss=1%"]
    simulated = CliRunner().invoke(main, ["simulate", "read", *lossy, "-o", str(tmp_path)], catch_exceptions=False)
    assert simulated.exit_code == 0
    result = fit_of(tmp_path / "initiator.pcapng")
    assert result.exit_code == 2
    assert not result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("iscsitrace: nothing to fit: ")
    assert "too few of them steady" in line
    assert "lossy" in line


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_send_buffer_is_a_window_at_other_delays(tmp_path: Path, tap: str) -> None:
    """Fitted at 4 ms, and held against runs at half and twice the delay."""

    def run(delay: str) -> Path:
        folder = tmp_path / delay
        options = "read --block-size 64K --bytes 8M --queue-depth 8 --set send-buffer=64K --rate 320Mbit"
        words = ["simulate", *options.split(), "--one-way-delay", delay, "-o", str(folder)]
        assert CliRunner().invoke(main, words, catch_exceptions=False).exit_code == 0
        return folder / f"{tap}.pcapng"

    file = tmp_path / "fit.json"
    file.write_text(fit_of(run("4ms"), "--json").stdout)
    delays = ("2ms", "8ms")
    words = ["model", "predict", "--fit", str(file), "--one-way-delay", ",".join(delays), "--json"]
    found = json.loads(CliRunner().invoke(main, words, catch_exceptions=False).stdout)["predictions"]
    for row, delay in zip(found, delays, strict=True):
        cycles = iscsitrace.read(run(delay)).cycles
        reads = cycles.select(cycles.raw("is_read") & (cycles.raw("bytes") == 64 * KIB))
        lasted_ns = int(reads.raw("status_ns").max() - reads.raw("command_first_ns").min())
        assert row["bound"] == "window"
        assert row["throughput_bytes_per_s"] == pytest.approx(len(reads) * 64 * KIB * 1e9 / lasted_ns, rel=0.05), delay
