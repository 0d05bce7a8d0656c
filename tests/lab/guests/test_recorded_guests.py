"""Recordings of scenarios of guests: what the wire shows by tshark, and what this project reads of it.

Each was made by `python -m bench.guests NAME -o DIR`, with open-iscsi and the kernel's LIO or tgt.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.scenarios import scenarios
from iscsitrace.cli import main
from tests.support.guest_runs import judge

RECORDINGS = sorted((Path(__file__).parents[2] / "vectors" / "guests").iterdir())


@pytest.fixture(params=RECORDINGS, ids=[folder.name for folder in RECORDINGS])
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An unpacked recording, in a folder of its name."""
    packed: Path = request.param
    folder = tmp_path / packed.name
    folder.mkdir()
    for file in packed.iterdir():
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    return folder


def test_there_are_enough_and_they_are_small() -> None:
    assert len(RECORDINGS) >= 12
    assert all(file.stat().st_size < 300_000 for folder in RECORDINGS for file in folder.iterdir())


def test_the_wire_shows_the_fault_and_the_truth_agrees(recording: Path) -> None:
    judge(scenarios()[recording.name], recording)


def test_every_pdu_is_read_and_diagnosed(recording: Path) -> None:
    # the PDUs at the target's tap are those of the initiator's, which `check --truth` compares at both
    captures = [str(recording / f"{name}.pcapng") for name in ("initiator", "target")]
    checked = CliRunner().invoke(main, ["check", "--json", "--fail-on", "never", "--against", "tshark", captures[0]])
    assert checked.exit_code == 0, checked.output
    for capture in captures:
        diagnosed = CliRunner().invoke(main, ["diagnose", "--json", capture])
        assert diagnosed.exit_code == 0, diagnosed.output
        assert json.loads(diagnosed.stdout)["sessions"]
