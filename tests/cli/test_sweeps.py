"""Sweeps on the command line: simulated captures whose settings and throughput are known, files, and wrong calls."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from iscsitrace.cli.read.model_options import _Settings
from tests.support.runs import Run, Runs

MS = 1_000_000
KIB = 1 << 10
DELAYS, SIZES = (8, 1, 4), (64, 256)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], Run]:
    made = Runs(tmp_path_factory.mktemp("sweep"))
    return {
        (delay, size): made(f"read --one-way-delay {delay}ms --rate 320Mbit --block-size {size}K --bytes 4M")
        for delay in DELAYS
        for size in SIZES
    }


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def captures(runs: dict[tuple[int, int], Run]) -> list[str]:
    return [str(run.capture()) for run in runs.values()]


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_each_capture_is_a_point_at_its_settings(runs: dict[tuple[int, int], Run], tmp_path: Path) -> None:
    result = call("model", "fit", "-o", str(tmp_path / "out"), *captures(runs))
    assert result.exit_code == 0, result.output
    found = rows(tmp_path / "out" / "points.csv")
    order = [(size, delay) for size in SIZES for delay in sorted(DELAYS)]
    assert [(int(row["block_bytes"]) // KIB, round(float(row["one_way_delay_ns"]) / MS)) for row in found] == order
    for row, (size, delay) in zip(found, order, strict=True):
        assert row["capture"] == str(runs[delay, size].capture())
        formula = size * KIB / (2 * delay * 1e-3 + size * KIB * 1514 / 1448 * 8 / 320e6)
        assert float(row["throughput_bytes_per_s"]) == pytest.approx(formula, rel=0.01)
        assert float(row["others_throughput_bytes_per_s"]) == pytest.approx(formula, rel=0.02)
        assert float(row["k"]) == pytest.approx(2, rel=0.01)
        idle = 1 - size * KIB * 1514 / 1448 * 8 / 320e6 * formula / (size * KIB)
        assert float(row["idle_fraction"]) == pytest.approx(idle, abs=0.01)
    names = {"points.csv", "connections.csv", "fit-read.json", "throughput-read.svg", "throughput-read.pdf"}
    assert {each.name for each in (tmp_path / "out").iterdir()} == names
    assert (tmp_path / "out" / "throughput-read.pdf").read_bytes().startswith(b"%PDF")
    document = json.loads((tmp_path / "out" / "fit-read.json").read_text())
    assert document["k"]["value"] == pytest.approx(2, rel=0.01)
    assert len(document["input"]) == len(runs)
    # the table has what the file has
    assert "vs. others %" in result.stdout


def test_the_same_captures_give_the_same_files_and_none_is_overwritten(
    runs: dict[tuple[int, int], Run], tmp_path: Path
) -> None:
    first, second = (str(tmp_path / name) for name in "ab")
    for folder in (first, second):
        assert call("model", "fit", "-o", folder, *captures(runs)).exit_code == 0
    for each in Path(first).iterdir():
        assert each.read_bytes() == (Path(second) / each.name).read_bytes(), each.name
    again = call("model", "fit", "-o", first, *captures(runs))
    assert again.exit_code == 2
    assert "exists; nothing was written" in again.stderr
    assert call("model", "fit", "-o", first, "--force", *captures(runs)).exit_code == 0


def test_the_report_has_every_point_and_no_time_line_over_all(runs: dict[tuple[int, int], Run], tmp_path: Path) -> None:
    file = tmp_path / "sweep.html"
    result = call("report", "--sweep", "-o", str(file), *captures(runs))
    assert result.exit_code == 0, result.output
    assert "Reads, 6 points at 3 one-way delays and 2 I/O sizes" in result.stdout
    page = file.read_text()
    assert "uneven" not in page.lower()
    assert "6 captures, each read alone" in page
    assert page.count("<figure") == 1
    assert "I/O size 64K, measured" in page
    text = call("report", "--sweep", "--format", "md", "-o", "-", *captures(runs)).stdout
    assert "| one-way delay | I/O size | commands |" in text


def test_named_settings_are_the_places(runs: dict[tuple[int, int], Run], tmp_path: Path) -> None:
    two = [str(runs[delay, 64].capture()) for delay in (8, 1)]
    result = call("model", "fit", "-o", str(tmp_path), "--at", "target=b,delay=8ms", "--at", "target=a,delay=9ms", *two)
    assert result.exit_code == 0, result.output
    found = rows(tmp_path / "points.csv")
    assert [(row["at_target"], float(row["at_delay_ns"])) for row in found] == [("a", 9e6), ("b", 8e6)]
    assert "the packets contradict the named one-way delay: half of the least RTT is 1.0 ms" in result.stdout


def test_connections_of_a_session_are_rows(tmp_path: Path) -> None:
    run = Runs(tmp_path)(
        "read --one-way-delay 4ms --rate 320Mbit --block-size 64K --bytes 4M --connections 2 --queue-depth 4"
    )
    assert call("model", "fit", "-o", str(tmp_path / "out"), str(run.capture())).exit_code == 0
    (point,) = rows(tmp_path / "out" / "points.csv")
    each = rows(tmp_path / "out" / "connections.csv")
    assert [row["connection"] for row in each] == ["0", "1"]
    rates = [float(row["throughput_bytes_per_s"]) for row in each]
    assert sum(rates) == pytest.approx(float(point["throughput_bytes_per_s"]))
    assert rates[0] == pytest.approx(rates[1], rel=0.05)
    # a connection is idle also while the other one sends
    idle = [float(row["idle_fraction"]) for row in each]
    assert min(idle) > float(point["idle_fraction"])
    assert sum(1 - share for share in idle) == pytest.approx(1 - float(point["idle_fraction"]), abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("model", "fit", "--at", "delay=1ms", "a"), "--at names settings of a sweep: use it with -o"),
        (("report", "--at", "delay=1ms", "a"), "--at names settings of a sweep: use it with --sweep"),
        (("report", "--sweep", "--session", "0", "a"), "a sweep has all sessions: use it without --session"),
        (("report", "--sweep", "-o", "-", "--at", "delay=1ms", "a", "b"), "--at is there 1 times for 2 captures"),
        (("report", "--sweep", "--at", "delay", "a"), "'delay' is not a setting like delay=8ms"),
        (("report", "--sweep", "--at", "delay=8", "a"), "'8' is not a time"),
        (("report", "--sweep", "--at", "delay=1ms,one-way-delay=2ms", "a"), "one-way-delay is set twice"),
        (("report", "--sweep", "--at", "queue-depth=0", "a"), "0 is not in the range x>=1"),
        (("report", "--sweep", "--at", "InitialR2T=perhaps", "a"), "'perhaps' is neither yes nor no"),
    ],
)
def test_wrong_calls_have_one_line(arguments: tuple[str, ...], why: str) -> None:
    result: Any = call(*arguments)
    assert result.exit_code == 2
    assert why in result.stderr


def test_a_chart_of_a_fit_has_what_was_measured(runs: dict[tuple[int, int], Run], tmp_path: Path) -> None:
    assert call("model", "fit", "-o", str(tmp_path), *captures(runs)).exit_code == 0
    chart = tmp_path / "chart.svg"
    fit = str(tmp_path / "fit-read.json")
    drawn = call(
        "model", "predict", "--fit", fit, "--one-way-delay", "1ms,2ms,8ms", "--block-size", "64K", "-o", str(chart)
    )
    assert drawn.exit_code == 0, drawn.output
    assert "error bars" in chart.read_text()


def test_named_settings_have_the_units_of_their_names() -> None:
    text = "delay=1.5ms, block-size=64K,queue-depth=4,loss=0.1%,InitialR2T=No,FirstBurstLength=64K,x=a b,y=-2,z=2.50"
    assert _Settings().convert(text, None, None) == {
        "delay_ns": 1_500_000,
        "block_bytes": 65_536,
        "queue_depth": 4,
        "loss": 0.001,
        "is_initial_r2t": False,
        "first_burst_bytes": 65_536,
        "x": "a b",
        "y": -2,
        "z": 2.5,
    }
