"""Throughput as a share of the line, or of a plain TCP transfer: in ``summary``, ``report`` and sweeps."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from tests.support.runs import Run, Runs

PATH = "--one-way-delay 1ms --rate 320Mbit"
LINE_BYTES_PER_S = 40e6


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def reads(runs: Runs) -> Run:
    return runs(f"read --block-size 256K --bytes 32M {PATH}")


@pytest.fixture(scope="module")
def socket(runs: Runs) -> str:
    return str(runs(f"socket-read --block-size 256K --bytes 64M {PATH}").capture())


def test_a_socket_fills_the_line_with_full_segments(reads: Run, socket: str) -> None:
    """1,448 of 1,514 bytes of a frame are payload: a socket carries 95.6 % of the line, and a read of 256 KiB, which
    waits for an RTT of 2 ms, 256 KiB in 8.85 ms.
    """
    result = call("summary", "--json", str(reads.capture()), "--link-rate", "320Mbit", "--socket", socket)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    of_socket = 1448 / 1514
    assert document["line_bytes_per_s"] == LINE_BYTES_PER_S
    assert document["socket_bytes_per_s"] == pytest.approx(of_socket * LINE_BYTES_PER_S, rel=0.005)
    # the time between two commands is not active time
    expected = 262_144 / LINE_BYTES_PER_S / (2e-3 + 262_144 / LINE_BYTES_PER_S / of_socket)
    for row in document["volumes"]:
        assert row["read_share_of_line"] == pytest.approx(expected, rel=0.01)
        assert row["read_share_of_socket"] == pytest.approx(expected / of_socket, rel=0.01)
        assert row["write_share_of_line"] == 0


def test_the_shares_are_columns_of_the_summary(reads: Run) -> None:
    shown = call("summary", str(reads.capture()), "--link-rate", "320Mbit").stdout
    assert "read % of line" in shown
    assert "of socket" not in shown
    assert "% of" not in call("summary", str(reads.capture())).stdout.split("Coverage")[0]


def test_the_report_has_them_beside_the_throughput(reads: Run) -> None:
    result = call(
        "report", str(reads.capture()), "--format", "md", "-o", "-", "--link-rate", "320Mbit", "--socket", "304Mbit"
    )
    assert result.exit_code == 0, result.output
    # 29.7 of 40 and of 38 MB/s
    assert "Of the line" in result.stdout
    assert "74 % read" in result.stdout
    assert "78 % read" in result.stdout


def test_a_sweep_has_them_for_each_point(runs: Runs, reads: Run, socket: str, tmp_path: Path) -> None:
    small = runs(f"read --block-size 64K --bytes 8M {PATH}")
    captures = [str(run.capture()) for run in (reads, small)]
    named = ("--link-rate", "320Mbit", "--socket", socket)
    result = call("model", "fit", *captures, "-o", str(tmp_path / "out"), *named)
    assert result.exit_code == 0, result.output
    with (tmp_path / "out" / "points.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        rate = float(row["throughput_bytes_per_s"])
        assert float(row["share_of_line"]) == pytest.approx(rate / LINE_BYTES_PER_S)
        assert float(row["share_of_socket"]) == pytest.approx(rate / (LINE_BYTES_PER_S * 1448 / 1514), rel=0.005)
    page = call("report", "--sweep", *captures, "--format", "md", "-o", "-", *named)
    assert page.exit_code == 0, page.output
    assert "% of line" in page.stdout
    assert "% of socket" in page.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("summary", "--link-rate", "fast"), "is not a rate"),
        (("summary", "--socket", "1Gbit", "--socket", "2Gbit"), "takes one rate or capture"),
        (("summary", "--socket", "nowhere.pcapng"), "nowhere.pcapng"),
        (("summary", "--by", "lun", "--link-rate", "1Gbit"), "without --by"),
        (("model", "fit", "--link-rate", "1Gbit"), "use it with -o"),
    ],
)
def test_wrong_yardsticks_are_one_line(reads: Run, arguments: tuple[str, ...], said: str) -> None:
    result = call(*arguments, str(reads.capture()))
    assert result.exit_code != 0
    assert said in result.stderr
    assert "Traceback" not in result.output
