"""The report on a dataset: what broke comes first, and each row leads to the capture, its frames and a command."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.fleet.sql import Database
from iscsitrace.fleet.top import Broken, broken_sessions, failure_command, failure_filter
from iscsitrace.report.fleet import describe
from tests.support import rings

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
FAULTS = {
    "black-out-and-relogin": "the session was reinstated by a new login",
    "login-not-authorized": "the target refused the login",
    "medium-error": "MEDIUM ERROR, unrecovered read error (3/11/00): ",
    "task-abort-storage-hang": "without status",
}
"""Samples, each with one fault, and what is told of it."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tap for each fault, and three taps on which nothing broke, one of them cut into files."""
    folder = tmp_path_factory.mktemp("fleet")
    for name in (*FAULTS, "loss-1-percent", "any-device"):
        (folder / name).mkdir()
        sample = next((SAMPLES / name).glob("capture.*"))
        (folder / name / sample.name).symlink_to(sample)
    healthy = rings.traffic(3, has_open=False, has_errors=False)
    rings.cut(folder / "healthy", healthy, rings.random_borders(healthy, 4, 3))
    for path in sorted(folder.iterdir()):
        rings.read_ring(folder / "data", path, tap=path.name)
    return folder / "data"


@pytest.fixture(scope="module")
def found(dataset: Path) -> list[Broken]:
    with Database(dataset) as database:
        return broken_sessions(database)


def test_the_faults_are_the_first_rows_and_nothing_else_broke(found: list[Broken]) -> None:
    assert {each.tap for each in found} == set(FAULTS)
    for each in found:
        assert any(FAULTS[each.tap] in what for what in each.what), each
    # what only returned an error status comes after what failed
    assert found[-1].tap == "medium-error"
    assert [each.lost_ns for each in found[:-1]] == sorted((each.lost_ns for each in found[:-1]), reverse=True)


def test_each_row_leads_to_a_frame_of_its_capture_and_a_command_that_finds_it(found: list[Broken]) -> None:
    for each in found:
        assert each.frames, each
        trace = iscsitrace.read(each.path)
        (row,) = [row for row in trace.connections.rows() if row["initiator_port"] == each.port]
        assert each.address == row["initiator_address"]
        assert row["frame_first"] <= each.frames[0] <= row["frame_last"]
        assert failure_filter(each).startswith(f"frame.number in {{{each.frames[0]}")
        arguments = failure_command(each)
        result = CliRunner().invoke(main, list(arguments[1:]))
        assert result.exit_code == 0, result.output
    (medium,) = [each for each in found if each.tap == "medium-error"]
    statuses = iscsitrace.read(medium.path).cycles
    failed = statuses.select(np.ma.filled(statuses["status"], 0) == 2).raw("status_frame")
    assert set(medium.frames) <= set(failed.tolist())


def test_the_page_has_the_rows_and_says_what_is_worst(dataset: Path, found: list[Broken], tmp_path: Path) -> None:
    document = describe(dataset)
    assert document.opening.headline.startswith("3 of ")
    assert (
        f"The worst is session {found[0].session} of tap {found[0].tap}: {found[0].what[0]}"
        in document.opening.headline
    )
    section = document.sections[0]
    assert [row[1] for row in section.grids[0].rows] == [each.tap for each in found]
    assert [row[4] for row in section.grids[1].rows] == [shlex.join(failure_command(each)) for each in found]
    volumes = next(each for each in document.sections if each.identity == "time").grids[0]
    assert volumes.caption == "By volume"
    page = tmp_path / "fleet.html"
    result = CliRunner().invoke(main, ["fleet", "report", str(dataset), "-o", str(page)])
    assert result.exit_code == 0, result.output
    assert "frame.number in" in page.read_text()
    assert CliRunner().invoke(main, ["fleet", "report", str(dataset), "-o", str(page)]).exit_code == 2


def test_without_a_failure_it_says_so(tmp_path: Path) -> None:
    healthy = rings.traffic(3, has_open=False, has_errors=False)
    rings.cut(tmp_path / "a", healthy, [])
    rings.read_ring(tmp_path / "data", tmp_path / "a")
    assert (
        describe(tmp_path / "data").opening.headline
        == "Nothing broke: 2 sessions without a failure or an error status."
    )
