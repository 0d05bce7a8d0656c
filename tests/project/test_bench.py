"""The captures of the bench: tshark and tcptrace find clean streams and every command."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest

import bench.generate
from bench.generate import generate
from tests.support import tshark

SMALL = {
    "sequential": (bench.generate.sequential_reads, 8_000_000),
    "random": (partial(bench.generate.random_io, task_count=200), 8_000_000),
    "sessions": (partial(bench.generate.random_io, 30, 20, 4), 8_000_000),
}
"""The captures of the bench with three periods each, and shorter ones."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.generate, "CAPTURES", SMALL)
        return generate(tmp_path_factory.mktemp("bench"))


def test_small_captures_have_the_names_of_the_large_ones() -> None:
    assert list(SMALL) == list(bench.generate.CAPTURES)


def test_a_missing_capture_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.generate, "CAPTURES", {"sequential": bench.generate.CAPTURES["sequential"]})
    file = generate(tmp_path, scale=0)["sequential"]
    content = file.read_bytes()
    file.unlink()
    generate(tmp_path, scale=0)
    assert file.read_bytes() == content


@pytest.mark.parametrize("name", SMALL)
def test_streams_are_clean(name: str, files: dict[str, Path]) -> None:
    file = files[name]
    content = json.loads(file.with_suffix(".json").read_text())
    assert file.stat().st_size == content["bytes"]
    times = tshark.response_times(file)
    assert sum(each.task_count for each in times.values()) == content["tasks"]
    assert sum(tshark.pdu_counts(file).values()) == content["pdus"]
    problems = "(tcp.analysis.flags && !tcp.analysis.window_update) || ip.checksum.status == 0"
    assert tshark.frame_numbers(file, problems, "-o", "ip.check_checksum:TRUE") == []
    command = ["tcptrace", "-n", "-l", "-r", "-W", str(file)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    packets = [line.split()[-1] for line in said.splitlines() if line.startswith("\ttotal packets:")]
    assert sum(map(int, packets)) == content["packets"]
    for line in said.splitlines():
        if "rexmt data pkts" in line or "outoforder pkts" in line:
            assert [word for word in line.split() if word.isdigit()] == ["0", "0"]
