"""`check --truth` with the truth of a sample: all samples agree, and a changed truth differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main

FOLDER = Path(__file__).parents[2] / "samples"
NAMES = sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())


def check(name: str, truth: Path) -> Result:
    (capture,) = (FOLDER / name).glob("capture.*")
    return CliRunner().invoke(main, ["check", "--fail-on", "never", "--truth", str(truth), str(capture)])


def changed(name: str, tmp_path: Path, **values: Any) -> Path:
    truth = json.loads((FOLDER / name / "truth.json").read_text()) | values
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    return tmp_path / "truth.json"


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_agrees_with_its_truth(name: str) -> None:
    result = check(name, FOLDER / name / "truth.json")
    assert result.exit_code == 0, result.output
    assert "differences: 0" in result.stdout


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"packet_count": 6506}, "packets: 6505 in the capture, 6506 in the truth"),
        ({"connection_count": 2, "session_count": 1}, "connections: 1 in the capture, 2 in the truth"),
        ({"session_count": 3}, "sessions: 1 in the capture, 3 in the truth"),
        ({"pdu_count": {"SCSI Command": 51}}, "commands: 50 in the capture, 51 in the truth"),
        ({"aborted_task_count": 1}, "aborted commands: 0 in the capture, 1 in the truth"),
        (
            {"keys_in_force": [{"target_name": "iqn.2024-01.example.lab:t1", "MaxBurstLength": "65536"}]},
            "MaxBurstLength: 262144 in the capture, 65536 in the truth",
        ),
    ],
)
def test_another_value_is_a_difference(values: dict[str, Any], line: str, tmp_path: Path) -> None:
    result = check("loss-1-percent", changed("loss-1-percent", tmp_path, **values))
    assert (result.exit_code, "differences: 1" in result.stdout) == (1, True)
    assert line in result.stdout


def test_parameters_are_not_compared_without_a_captured_login(tmp_path: Path) -> None:
    truth = changed("mid-session", tmp_path, keys_in_force=[{"target_name": "iqn.x", "MaxBurstLength": "1"}])
    assert check("mid-session", truth).exit_code == 0


@pytest.mark.parametrize("values", [{"keys_in_force": [7]}, {"pdu_count": 3}, {"keys_in_force": {"a": 1}}])
def test_a_damaged_truth_is_one_line(values: dict[str, Any], tmp_path: Path) -> None:
    result = check("loss-1-percent", changed("loss-1-percent", tmp_path, **values))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "the truth is damaged" in result.stderr
