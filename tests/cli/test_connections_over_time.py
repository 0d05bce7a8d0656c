"""A session that tunes its number of connections: in summary, diagnose and the report."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from tests.support.runs import Run, Runs

PATH = "--one-way-delay 5ms --rate 20Mbit --block-size 16K --service-delay 30ms"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def tuned(runs: Runs) -> Run:
    return runs(f"read --connections auto:golden --seconds 24 {PATH}")


def call(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_summary_has_a_row_for_each_number(tuned: Run) -> None:
    capture = str(tuned.capture())
    (found,) = json.loads(call("summary", "--json", capture))["connection_counts"]
    shown = call("summary", capture)
    table = shown.split("Session 0 by the number of its connections\n")[1].splitlines()
    rows = [line.split() for line in table[1 : 1 + len(found["counts"])]]
    assert [int(row[0]) for row in rows] == [each["connections"] for each in found["counts"]]
    assert [float(row[3]) for row in rows] == pytest.approx(
        [each["bytes_per_s"] / 1e6 for each in found["counts"]], abs=5e-4
    )
    assert f"enough: {found['enough']} connections." in shown
    assert sum(each["cycle_count"] for each in found["counts"]) <= 24 * 150
    assert [each["connections"] for each in found["stages"]][:3] == [4, 6, 10]


def test_a_session_with_one_number_has_no_such_table(runs: Runs) -> None:
    capture = str(runs(f"read --connections 4 --queue-depth 4 --bytes 2M {PATH}").capture())
    assert json.loads(call("summary", "--json", capture))["connection_counts"] == []
    assert "by the number of its connections" not in call("summary", capture)


def test_the_report_says_what_more_connections_bring(tuned: Run) -> None:
    text = call("report", str(tuned.capture()), "--format", "md", "-o", "-")
    section = text.split("## Connections over time")[1]
    assert "more bring nothing" in section.splitlines()[2]
    assert "retransmitted %" in section


def test_late_connections_are_not_uneven_and_nothing_advises_more(tuned: Run) -> None:
    for tap in ("initiator", "target"):
        document = json.loads(call("diagnose", "--json", str(tuned.capture(tap))))
        findings = [each for session in document["sessions"] for each in session["findings"]]
        assert "uneven_connections" not in {each["name"] for each in findings}
        gains = [gain["change"] for each in findings for gain in each["gains"]]
        assert not [change for change in gains if "connections" in change]
        assert "Use 2 to 4 paths" not in call("diagnose", "-v", str(tuned.capture(tap)))
