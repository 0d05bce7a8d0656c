"""Two sessions compared by place: by runs whose times at each place are set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from tests.support.runs import Run, Runs

MS = 1_000_000
FAR = "read --one-way-delay 8ms --block-size 16K --bytes 2M --service-delay 1ms --seed 5"
BUSY = "read --one-way-delay 2ms --block-size 16K --bytes 2M --service-delay 5ms --seed 5"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("places"))


def diff(a: Run, b: Run, *options: object) -> Result:
    arguments = ["diff", str(a.capture()), str(b.capture()), *map(str, options)]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_the_difference_is_where_it_was_put(runs: Runs) -> None:
    """Twice 6 ms of delay less on the network, 4 ms of service more in the target."""
    a, b = runs(FAR), runs(BUSY)
    result = diff(a, b, "--tap-a", a.capture("target"), "--tap-b", b.capture("target"), "--json")
    places = json.loads(result.stdout)["places"]
    assert places["a"]["parts_ns"]["network"] == pytest.approx(16 * MS, rel=0.01)
    assert places["b"]["parts_ns"]["target"] == pytest.approx(5 * MS, rel=0.01)
    difference = places["parts_ns"]
    assert difference["network"] == pytest.approx(-12 * MS, rel=0.01)
    assert difference["target"] == pytest.approx(4 * MS, rel=0.01)
    assert difference["initiator"] == 0
    assert sum(difference.values()) == places["latency_ns"]
    assert [each["name"] for each in places["findings"]["b"]] == ["slow_at_target"]


def test_the_table_and_the_findings(runs: Runs) -> None:
    a, b = runs(FAR), runs(BUSY)
    result = diff(a, b, "--tap-a", a.capture("target"), "--tap-b", b.capture("target"))
    lines = result.stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("By place"))
    assert lines[head + 1].startswith("B: slow_at_target (warning): The target takes ")
    rows = {line[:17].strip(): line[17:].split() for line in lines[head + 2 : head + 7]}
    assert rows["network"][:3] == ["16.000", "4.000", "-12.000"]
    assert rows["target"][:3] == ["1.000", "5.000", "4.000"]
    assert rows["median latency"][:3] == ["17.000", "9.000", "-8.000"]


@pytest.mark.parametrize("option", ["--tap-a", "--tap-b"])
def test_one_side_with_two_taps_is_not_compared_by_place(runs: Runs, option: str) -> None:
    a, b = runs(FAR), runs(BUSY)
    result = diff(a, b, option, (a if option == "--tap-a" else b).capture("target"), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["places"] is None


def test_other_traffic_is_no_tap(runs: Runs) -> None:
    a, b = runs(FAR), runs(BUSY)
    result = diff(a, b, "--tap-a", b.capture("target"))
    assert result.exit_code == 2
    assert "are not taps of the same traffic" in result.stderr


def test_samples_are_those_of_their_side(runs: Runs, tmp_path: Path) -> None:
    a, b = runs(FAR), runs(BUSY)
    samples = tmp_path / "a.ss"
    samples.write_text("1700000000.5 ESTAB 0 0 198.18.0.10:3260 198.18.0.1:40000 cubic mss:1448 cwnd:10 busy:5ms\n")
    document = json.loads(diff(a, b, "--tcp-info-a", samples, "--json").stdout)
    assert document["a"]["options"]["tcp_info"] == [str(samples)]
    assert not document["b"]["options"].get("tcp_info")
