"""Tables of a dataset, exported from captures: what `diagnose` finds, and its time breakdown."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.fleet.run import TABLES
from iscsitrace.show.export import EXPORTED

SAMPLES = Path(__file__).parents[2] / "samples"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_table_of_a_dataset_can_be_exported() -> None:
    assert set(TABLES) <= set(EXPORTED)


@pytest.mark.parametrize("name", ["loss-1-percent", "black-out-and-relogin", "task-abort-storage-hang"])
def test_they_are_those_of_the_diagnosis(name: str, tmp_path: Path) -> None:
    (capture,) = (SAMPLES / name).glob("capture.*")
    run("export", "-o", tmp_path, "--tables", "findings,time_breakdown", capture)
    diagnosis = json.loads(run("diagnose", "--json", capture))
    assert diagnosis["time_breakdown"] == diagnosis["budget"]
    found = {row["name"] for row in csv.DictReader((tmp_path / "findings.csv").read_text().splitlines())}
    assert found == {
        finding["name"] for each in (*diagnosis["sessions"], *diagnosis["stories"]) for finding in each["findings"]
    }
    parts: Counter[str] = Counter()
    for row in csv.DictReader((tmp_path / "time_breakdown.csv").read_text().splitlines()):
        parts[row["part"]] += int(row["duration_ns"])
    told: Counter[str] = Counter()
    for session in diagnosis["sessions"]:
        told.update(session["time_breakdown"] or {})
    assert +parts == +told
