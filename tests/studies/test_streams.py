"""Parallel streams in experiments: their measured quantities, against hand arithmetic and the capture."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid
from iscsitrace.lab import simulation
from iscsitrace.lab.settings import structs as settings
from iscsitrace.lab.settings.kinds import Value
from iscsitrace.studies import (
    charts,
    definition,
    expected,
    experiment,
    from_truth,
    measured,
    points,
    repeats,
    results,
    tables,
)
from iscsitrace.studies.definition import Definition, FinishFigure, LineFigure
from iscsitrace.studies.from_truth import StreamTruth
from iscsitrace.studies.quantities import QUANTITIES, PointResult
from iscsitrace.studies.results import Results
from tests.support.capture_file import read_records

STUDY = "stream-study"


def stream(
    throughput: float = 1.0, ended_s: float = 1.0, resent: int | None = 0, timeouts: int | None = 0
) -> StreamTruth:
    return StreamTruth(0, 0, 0, throughput, ended_s, resent, timeouts)


# ---- by hand


@pytest.mark.parametrize(
    ("throughputs", "index"),
    [([5, 5, 5, 5], 1.0), ([7, 0, 0, 0], 0.25), ([3, 1], 16 / 20), ([1, 2, 3], 36 / 42), ([4], 1.0)],
)
def test_jain_is_one_for_equals_and_one_nth_if_one_has_all(throughputs: list[float], index: float) -> None:
    assert from_truth.jain([stream(each) for each in throughputs]) == pytest.approx(index)


def test_no_streams_have_no_figures() -> None:
    assert from_truth.jain([]) is None
    assert from_truth.jain([stream(0.0)]) is None
    assert from_truth.spread_s([]) is None
    assert from_truth.spread_ratio([]) is None
    assert from_truth.timeout_count([stream(), stream(timeouts=None)]) is None


def test_the_spread_is_from_the_first_end_to_the_last() -> None:
    found = [stream(ended_s=each) for each in (80.0, 70.0, 100.0)]
    assert from_truth.spread_s(found) == 30
    assert from_truth.spread_ratio(found) == pytest.approx(100 / 70)


@pytest.mark.parametrize(
    ("ends_s", "windows", "rank"),
    [
        ((1.0, 2.0, 3.0), (300, 200, 100), -1.0),
        ((1.0, 2.0, 3.0), (100, 200, None), 1.0),
        # ranks 1 2 3 4 and 1.5 1.5 3.5 3.5: covariance 4, root of 5 * 4
        ((1.0, 2.0, 3.0, 4.0), (100, 100, 200, 200), 4 / 20**0.5),
        ((1.0, 2.0), (200, 100), None),
        ((1.0, 2.0, 3.0), (100, 100, 100), None),
    ],
)
def test_slow_start_thresholds_are_ranked(
    ends_s: tuple[float, ...], windows: tuple[int | None, ...], rank: float | None
) -> None:
    pairs = zip(ends_s, windows, strict=True)
    found = [replace(stream(ended_s=ended_s), slow_start_left_bytes=window) for ended_s, window in pairs]
    assert from_truth.slow_start_rank(found) == (None if rank is None else pytest.approx(rank))


SECOND = 1_000_000_000


def test_the_mean_is_compared_with_the_best_second() -> None:
    # 4, 1, 1 and 2 bytes in four seconds: 2 on average
    ends_s = [(0.5, 4), (1.5, 1), (2.5, 1), (3.5, 2)]
    done = np.array([(0, 0, 0, round(at * SECOND), size) for at, size in ends_s])
    assert from_truth.mean_of_peak(done, 0, 4 * SECOND) == pytest.approx(2 / 4)
    assert from_truth.mean_of_peak(done, 0, SECOND) is None
    assert from_truth.mean_of_peak(done, 5 * SECOND, 9 * SECOND) is None


@pytest.mark.parametrize(
    ("values", "rate"), [({"link.access-rate": 600e6}, 450e6), ({"link.rate": 100e6}, 75e6), ({}, None)]
)
def test_the_rate_on_the_line_is_that_of_its_busy_time(values: dict[str, Any], rate: float | None) -> None:
    point = PointResult(name="", arm="", grid={}, values=values, repeat=1, digest="", utilisation=0.75)
    assert QUANTITIES["line_rate"].measured(point) == (None if rate is None else pytest.approx(rate / 1e6))


def link(arrived: int, busy_s: list[tuple[float, float]], not_kept_s: float | None = None) -> dict[str, Any]:
    line = {
        "busy_times": {
            name: [round(each[side] * SECOND) for each in busy_s] for side, name in enumerate(("from_ns", "to_ns"))
        },
        "not_kept_from_ns": None if not_kept_s is None else round(not_kept_s * SECOND),
    }
    direction = {"counters": {"arrived": {"count": arrived}}, "line": line}
    return {"to_target": direction, "to_initiator": direction}


def end(connection: int, resent: int, thresholds: list[int], timeouts: int = 0) -> dict[str, Any]:
    windows = {"time_ns": [(1 + place) * SECOND for place in range(len(thresholds))], "ssthresh": thresholds}
    return {
        "initiator_port": 40_000 + connection,
        "snd_mss": 1000,
        "retransmitted_segment_count": resent,
        "timeout_count": timeouts,
        "windows": windows,
    }


NO_LOSS = 2_147_483_647
TRUTH: dict[str, Any] = {
    # two streams: commands of 1000 bytes are done at 2, 4, 6 and 3, 9 s
    "cycles": {
        "operation": [None, "read", "read", "read", "read", "read"],
        "target": [0, 0, 0, 1, 0, 1],
        "connection": [0, 0, 0, 1, 0, 1],
        "bytes": [36, 1000, 1000, 1000, 1000, 1000],
        "initiator": {
            "command_first_ns": [0, SECOND, 2 * SECOND, SECOND, 4 * SECOND, 3 * SECOND],
            "status_ns": [0, 2 * SECOND, 4 * SECOND, 3 * SECOND, 6 * SECOND, 9 * SECOND],
        },
    },
    "results": {
        "started_ns": 1 * SECOND,
        "elapsed_ns": 8 * SECOND,
        "bytes": 5000,
        "mode": "run",
        "connections": [{"connection": 0, "target": 0}, {"connection": 1, "target": 1}],
    },
    "paths": [link(60, []), link(40, [])],
    "access": link(100, [(0.0, 2.0), (3.0, 4.0), (8.0, 12.0)], 10.0),
    "initiator_ends": [],
    "target_ends": [[end(0, 2, [NO_LOSS, NO_LOSS, 20, 10])], [end(1, 3, [NO_LOSS], timeouts=1)]],
}


def test_each_stream_counts_its_commands_to_its_end() -> None:
    first, second = from_truth.of_truth(TRUTH, SECOND, None, is_read=True)
    assert (first.target, first.connection, first.byte_count, first.ended_s) == (0, 0, 3000, 5)
    assert (second.target, second.connection, second.byte_count, second.ended_s) == (1, 1, 2000, 8)
    assert (first.throughput_bytes_per_s, second.throughput_bytes_per_s) == (600, 250)
    assert (first.resent_count, first.timeout_count, second.timeout_count) == (2, 0, 1)
    # the third sample is the first with a threshold
    assert (first.slow_start_ended_s, first.slow_start_left_bytes) == (2, 20_000)
    assert (second.slow_start_ended_s, second.slow_start_left_bytes) == (None, None)
    assert from_truth.retransmission_rate(TRUTH, (first, second), is_read=True) == 0.05


def test_a_time_limit_ends_all_streams_together() -> None:
    first, second = from_truth.of_truth(TRUTH, 2 * SECOND, 6 * SECOND, is_read=True)
    # at 4 and 6 s; at 3 s: what was done at 2 s is before, and what was done at 9 s after it
    assert (first.byte_count, second.byte_count) == (2000, 1000)
    assert (first.throughput_bytes_per_s, second.throughput_bytes_per_s) == (500, 250)


@pytest.mark.parametrize(
    ("from_s", "to_s", "share"), [(0, 4, 3 / 4), (1, 3.5, 1.5 / 2.5), (4, 8, 0.0), (9, 10, 1.0), (9, 11, None)]
)
def test_utilisation_is_the_busy_share_of_the_shared_line(from_s: float, to_s: float, share: float | None) -> None:
    found = from_truth.utilisation(TRUTH, round(from_s * SECOND), round(to_s * SECOND), is_read=True)
    assert found == (None if share is None else pytest.approx(share))


def test_without_a_shared_line_only_a_single_path_has_utilisation() -> None:
    alone = {**TRUTH, "access": None, "paths": [TRUTH["access"]]}
    assert from_truth.utilisation(alone, 0, 4 * SECOND, is_read=True) == pytest.approx(3 / 4)
    assert from_truth.utilisation({**TRUTH, "access": None}, 0, 4 * SECOND, is_read=True) is None
    no_rate = {"to_initiator": {"line": None}}
    assert from_truth.utilisation({**TRUTH, "access": no_rate}, 0, 4 * SECOND, is_read=True) is None


def test_the_kernels_connections_are_matched_by_port() -> None:
    ends = [{"connection": 0, "own_port": 51_111}, {"connection": 1, "own_port": 50_000}]
    target_ends = [[end(0, 7, [])], [end(0, 9, [])]]
    target_ends[0][0]["initiator_port"], target_ends[1][0]["initiator_port"] = 51_111, 50_000
    for each in target_ends:
        del each[0]["timeout_count"]
    found = from_truth.of_truth({**TRUTH, "ends": ends, "target_ends": target_ends}, SECOND, None, is_read=True)
    assert [each.resent_count for each in found] == [7, 9]
    assert from_truth.timeout_count(found) is None


def test_the_warm_up_may_be_a_time() -> None:
    values: dict[str, Value] = {"workload.seconds": 5, "workload.block-size": 1000}
    stretch = measured.timed_stretch(TRUTH, values, 1.5)
    # from 2.5 to 6 s: what was done at 3, 4 and 6 s
    assert (stretch.start_ns, stretch.end_ns, stretch.byte_count) == (round(2.5 * SECOND), 6 * SECOND, 3000)
    assert stretch.throughput_bytes_per_s == pytest.approx(3000 / 3.5)
    for warm_up_s in (5, 7):
        with pytest.raises(InputInvalid, match="are too short: the warm-up alone takes"):
            measured.timed_stretch(TRUTH, values, warm_up_s)


# ---- a small experiment

SMALL = """
title = "Small"
source = "a test"
repeats = 2
warm-up-seconds = 1

[link]
one-way-delay = "20ms"
jitter = "0.1ms"
access-rate = "20Mbit"
access-queue-packets = 300

[tcp]
congestion-control = "reno"
window = "1M"
send-buffer = "1M"

[workload]
operation = "read"
layout = "stripe"
block-size = "32K"
queue-depth = 2
seconds = 3

[capture]
at = "none"

[grid.target]
count = [1, 4]

[[arms]]
name = "by the clock"

[[arms]]
name = "one file"
warm-up-seconds = 3
model = false
repeats = 1
link.loss = "2%"
workload.bytes = "3M"
capture.at = "initiator"
grid.target.count = [3]

[real]
arms = ["by the clock"]
repeats = 1
warm-up-seconds = 0.5
workload.seconds = 1
grid.target.count = [2]

[[figures]]
name = "scatter"
kind = "lines"
title = "Scatter"
x = "target.count"
y = "scatter"
to-scale = true

[[figures]]
name = "finishes"
kind = "finishes"
title = "Ends"
arms = ["one file"]

[[figures]]
name = "streams"
kind = "streams"
title = "Streams"
arms = ["one file"]
"""


def written(folder: Path, text: str) -> Definition:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small.toml").write_text(text)
    return definition.load(folder / "small.toml")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Definition, Results]:
    folder = tmp_path_factory.mktemp("streams")
    found = written(folder / "definition", SMALL)
    made = points.of_experiment(found, "simulated")
    directory = folder / "run"
    experiment.prepare(found, made, directory, is_forced=False)
    return directory, found, experiment.carry_out(found, made, directory, lambda _: False, jobs=1, keep="figures")


Small = tuple[Path, Definition, Results]


def of_arm(found: Results, arm: str) -> list[PointResult]:
    return [point for point in found.points if point.arm == arm]


def test_without_captures_figures_come_from_the_truth(small: Small) -> None:
    directory, _, found = small
    assert not found.failed
    for point in of_arm(found, "by the clock"):
        assert [path.name for path in (directory / results.POINTS / point.name).iterdir()] == [results.RESULT]
        count = point.values["target.count"]
        assert len(point.streams) == count
        # two commands of 32 KiB per RTT of 40 ms plus the line time of one; or the line rate
        in_turn = count * 2 * 32_768 / (0.04 + 32_816 * 1514 / 1448 * 8 / 20e6)
        line = 20e6 / 8 * 1448 / 1514 * 32_768 / 32_816
        assert point.steady_throughput_bytes_per_s == pytest.approx(min(in_turn, line), rel=0.05)
        assert point.utilisation == pytest.approx(min(in_turn, line) / line, rel=0.05)
        assert point.jain == pytest.approx(1, abs=0.01)
        assert point.timeout_count == 0
        assert point.spread_s is None
        assert point.idle_fraction is None
        assert point.model_error == pytest.approx(0, abs=0.05)


def test_captures_are_taken_only_where_requested(small: Small, tmp_path: Path) -> None:
    (point,) = [each for each in points.of_experiment(small[1], "simulated") if each.arm == "one file"]
    for where, files in (("none", set()), ("initiator", {"initiator.pcapng"}), ("target", {"target.pcapng"})):
        wanted = {"none": ()}.get(where, (where,))
        run_settings = settings.of_run({**point.values, "target.count": 1, "workload.bytes": 65_536}, 1)
        truth = simulation.run(run_settings, tmp_path / where, lambda *_: False, capture_at=wanted)
        assert {path.name for path in (tmp_path / where).iterdir()} == {"truth.json", *files}
        named = {truth["captures"]["initiator"], *truth["captures"]["targets"]} - {None}
        assert named == files
        assert json.loads((tmp_path / where / "truth.json").read_text()) == truth


def late_data(capture: Path) -> tuple[int, int]:
    """Data packets from the targets, and how many of them came after later data: those are retransmissions, because the
    link keeps the order.
    """
    reached: dict[tuple[bytes, int], int] = {}
    count = late_count = 0
    for record in read_records(capture)[0]:
        packet = record.data[14:]
        header_bytes, (length,) = (packet[0] & 0xF) * 4, struct.unpack_from(">H", packet, 2)
        source, port, sequence = struct.unpack_from(">HHI", packet, header_bytes)
        payload = length - header_bytes - (packet[header_bytes + 12] >> 4) * 4
        if source != 3260 or not payload:
            continue
        # from the target's address to the initiator's port
        stream = packet[12:16], port
        ahead = (sequence - reached.get(stream, sequence)) % 2**32
        count += 1
        late_count += ahead >= 2**31
        if ahead < 2**31:
            reached[stream] = sequence + payload
    return count, late_count


def test_figures_of_a_file_over_streams_agree_with_its_capture(small: Small) -> None:
    directory, _, found = small
    (point,) = of_arm(found, "one file")
    assert sum(each.byte_count for each in point.streams) == 3 << 20
    assert point.model is None
    folder = directory / results.POINTS / point.name
    assert sorted(path.name for path in folder.iterdir()) == ["initiator.pcapng", "result.json", "truth.json"]
    trace = iscsitrace.read(folder / "initiator.pcapng", tables=("retransmissions",))
    cycles = trace.cycles.select(trace.cycles["operation"] == "read")
    begun_ns = int(cycles.raw("command_first_ns").min())
    ends = {
        number: (int(cycles.raw("status_ns")[cycles.raw("connection") == number].max()) - begun_ns) / 1e9
        for number in np.unique(cycles.raw("connection")).tolist()
    }
    assert [each.ended_s for each in point.streams] == pytest.approx(list(ends.values()), abs=0.001)
    rates = np.array([each.byte_count for each in point.streams]) / np.array(list(ends.values()))
    assert point.jain == pytest.approx(rates.sum() ** 2 / (3 * (rates**2).sum()), abs=1e-4)
    assert point.spread_s == pytest.approx(max(ends.values()) - min(ends.values()), abs=0.001)
    # what a capture beside the receiver can see of it: not what was lost twice, and never more
    resent = sum(each.resent_count or 0 for each in point.streams)
    again = trace.retransmissions.select(~trace.retransmissions.raw("to_target"))
    data_count, late_count = late_data(folder / "initiator.pcapng")
    assert len(again) == late_count <= resent
    # two percent of the data packets were lost and retransmitted: within four standard deviations
    assert point.retransmission_rate == pytest.approx(resent / data_count, rel=0.1)
    assert point.retransmission_rate == pytest.approx(0.02, abs=4 * (0.02 * 0.98 / data_count) ** 0.5)


def test_the_threshold_after_a_loss_in_slow_start_is_reported(small: Small) -> None:
    (point,) = of_arm(small[2], "one file")
    for each in point.streams:
        assert each.slow_start_ended_s is not None
        assert each.slow_start_left_bytes is not None
        # the first of all may be lost during the login
        assert -0.3 < each.slow_start_ended_s < each.ended_s
        # no more than half of what two commands need
        assert 2 * 1448 <= each.slow_start_left_bytes <= 2 * 32_816


def test_repeats_have_different_seeds(small: Small) -> None:
    made = [point for point in points.of_experiment(small[1], "simulated") if point.values["target.count"] == 4]
    seeds = [path["seed"] for point in made for path in point.run_settings["world"]["paths"]]
    assert len(made) == 2
    assert len(set(seeds)) == len(seeds)


def test_scatter_is_computed_over_repeats(small: Small) -> None:
    point = of_arm(small[2], "by the clock")[0]
    more = [replace(point, repeat=each, steady_throughput_bytes_per_s=rate) for each, rate in ((2, 8e6), (3, 12e6))]
    (row,) = repeats.rows(more)
    # 8 and 12: 10, and a deviation of 2 times the root of 2
    assert row.means["scatter"] == pytest.approx(100 * 2 * 2**0.5 / 10)
    assert "scatter" not in repeats.rows([point])[0].means


def test_figures_show_ends_and_streams(small: Small) -> None:
    directory, found, made = small
    assert [each.file for each in made.figures] == ["scatter.svg", "finishes.svg", "streams.svg"]
    lines, finishes, _ = found.figures
    assert isinstance(lines, LineFigure)
    assert isinstance(finishes, FinishFigure)
    scale = charts.of_lines(lines, found, repeats.rows(made.points))
    assert (scale.ticks, scale.x_label) == (((1.0, "1"), (3.0, "3"), (4.0, "4")), "number of targets")
    chart = charts.of_finishes(finishes, found, made.points)
    (line,) = chart.lines
    (point,) = of_arm(made, "one file")
    assert line.measured == tuple(sorted(each.ended_s for each in point.streams))
    assert [text for _, text in chart.ticks] == ["1", "2", "3"]
    assert results.load(directory) == made


def test_ends_of_repeats_are_means(small: Small) -> None:
    _, found, made = small
    (point,) = of_arm(made, "one file")
    slow = replace(point, repeat=2, streams=tuple(replace(each, ended_s=each.ended_s + 2) for each in point.streams))
    finishes = found.figures[1]
    assert isinstance(finishes, FinishFigure)
    (line,) = charts.of_finishes(finishes, found, [point, slow]).lines
    ends = sorted(each.ended_s for each in point.streams)
    assert line.measured == pytest.approx([each + 1 for each in ends])
    # standard error of two values that differ by 2: 1; Student's t with one degree of freedom
    halves = [(high - low) / 2 for low, high in filter(None, line.intervals)]
    assert halves == pytest.approx([12.7062] * 3, rel=1e-4)
    assert line.counts == (2, 2, 2)


def test_streams_are_shown_as_a_table(small: Small, tmp_path: Path) -> None:
    directory, _, made = small
    (grid,) = [each for each in tables.of(made) if each.caption == "Parallel streams"]
    assert [row[2] for row in grid.rows] == ["1", "4", "3"]
    page = CliRunner().invoke(main, ["report", str(directory), "--format", "md", "-o", "-"]).output
    assert "**Parallel streams**" in page


def test_both_worlds_have_a_reduced_scale(small: Small) -> None:
    found = small[1]
    real = points.of_experiment(found, "real")
    reduced = points.of_experiment(found, "simulated", is_reduced=True)
    assert [point.name for point in real] == ["by-the-clock,count=2"]
    assert [(point.name, point.run_settings, point.warm_up) for point in reduced] == [
        (point.name, point.run_settings, point.warm_up) for point in real
    ]
    assert real[0].warm_up.seconds == 0.5
    of_arms = {point.arm: point.warm_up.seconds for point in points.of_experiment(found, "simulated")}
    assert of_arms == {"by the clock": 1, "one file": 3}
    assert real[0].capture_at == ()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("warm-up-seconds = 1\n", 'warm-up-seconds = "1s"\n'), "Expected `float`, got `str` - at `$.warm-up-seconds`"),
        (('at = "none"', 'at = "router"'), "capture.at: 'router' is not one of both, initiator, none"),
        (('arms = ["by the clock"]', 'arms = ["by chance"]'), "real.arms: no arm is called 'by chance'; there are by"),
        (("repeats = 1\nlink", "repeats = 0.5\nlink"), "Expected `int`, got `float` - at `$.arms[1].repeats`"),
        (('kind = "finishes"', 'kind = "finishes"\ny = "k"'), "unknown field `y` - at `$.figures[1]`"),
    ],
)
def test_a_mistake_is_a_one_line_error_with_its_key(tmp_path: Path, change: tuple[str, str], line: str) -> None:
    assert change[0] in SMALL
    with pytest.raises(InputInvalid) as caught:
        written(tmp_path, SMALL.replace(*change, 1))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- input of the model

LONG: dict[str, Value] = {
    "workload.operation": "read",
    "workload.layout": "stripe",
    "workload.block-size": 65_536,
    "workload.queue-depth": 32,
    "link.one-way-delay": 100_000_000,
    "link.access-rate": 600_000_000,
    "target.is-serial": True,
    "target.service-delay": 1_750_000,
    "tcp.congestion-control": "reno",
    "tcp.window": 32 << 20,
    "tcp.send-buffer": 32 << 20,
}
LINE = 600e6 / 8 * 1448 / 1514


def throughput(values: Mapping[str, Value]) -> float:
    prediction = expected.of_point({**LONG, **values}, None)
    assert prediction is not None
    return prediction.throughput_bytes_per_s


def test_the_model_has_disks_that_serve_one_command_at_a_time() -> None:
    disk = 65_536 / 1.75e-3
    assert throughput({"link.one-way-delay": 0}) == pytest.approx(disk, rel=0.01)
    # two disks fill more of the line, and three all of it
    assert throughput({"link.one-way-delay": 0, "target.count": 2}) == pytest.approx(min(2 * disk, LINE), rel=0.01)
    assert throughput({"link.one-way-delay": 0, "target.count": 3}) == pytest.approx(LINE, rel=0.01)


def test_the_model_adds_up_streams_until_they_fill_the_line() -> None:
    one = throughput({})
    assert one == pytest.approx(32 * 65_536 / 0.202, rel=0.02)
    assert throughput({"target.count": 4}) == pytest.approx(4 * one, rel=0.02)
    assert throughput({"target.count": 26}) == pytest.approx(LINE, rel=0.01)


def test_the_model_adds_up_streams_limited_by_losses() -> None:
    # Mathis and others: 1.22 segments / sqrt(p) per RTT
    one = (3 / 2) ** 0.5 / 1e-4**0.5 * 1448 / 0.2
    for count in (1, 8):
        assert throughput({"target.count": count, "link.loss": 1e-4}) == pytest.approx(count * one, rel=0.1)


# ---- the study


def test_the_stream_study_is_complete() -> None:
    found = definition.load(STUDY)
    made = points.of_experiment(found, "simulated")
    main_arm = [point for point in made if point.arm == "streams"]
    assert {point.values["target.count"] for point in main_arm} == {1, 2, 4, 8, 12, 16, 20, 26}
    assert {point.values["link.loss"] for point in main_arm} == {0, 1e-4}
    assert {point.values["tcp.window"] for point in main_arm} == {32 << 20}
    # 596.65 Mbit/s of IP packets of 1500 bytes, in frames of 1514
    (rate,) = {point.values["link.access-rate"] for point in main_arm}
    assert rate == pytest.approx(596.65e6 * 1514 / 1500, rel=1e-4)
    assert any(point.values.get("capture.is-ipv6") for point in made)
