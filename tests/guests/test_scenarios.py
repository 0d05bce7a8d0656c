"""Each scenario of guests is run, and tshark finds in its captures what the scenario says."""

from __future__ import annotations

import operator
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.guests import first_io_s, wire
from iscsitrace.lab.guests.scenarios import Scenario, scenarios
from iscsitrace.lab.run_files import TRUTH, capture_name
from tests.support import tshark

pytestmark = pytest.mark.needs_guests

Truth = dict[str, Any]


@pytest.mark.parametrize("scenario", scenarios().values(), ids=operator.attrgetter("name"))
def test_scenario(scenario: Scenario, tmp_path: Path) -> None:
    truth = scenario.run(tmp_path, print)

    assert bool(truth["results"]["error"]) == scenario.fails
    assert [each["name"] for each in truth["faults"]] == [each.partition(",")[0] for each in scenario.faults]
    for each in truth["faults"]:
        assert truth["started_ns"] <= each["began_ns"] <= each["ended_ns"]
    for host, filters in scenario.seen.items():
        for display_filter, least in filters.items():
            assert len(tshark.frame_numbers(tmp_path / capture_name(host), display_filter)) >= least, display_filter
    for host, unwanted in scenario.unseen.items():
        for display_filter in unwanted:
            assert not tshark.frame_numbers(tmp_path / capture_name(host), display_filter), display_filter
    for host, least_s in scenario.gap.items():
        # the silence that the fault explains, after the first I/O
        assert wire(tmp_path / capture_name(host), since_s=first_io_s(tmp_path)).silence_s >= least_s
    for host in ("initiator", "target"):
        assert agrees(tmp_path / capture_name(host), tmp_path / TRUTH)


def agrees(capture: Path, truth: Path) -> bool:
    """Whether `check` finds no difference between a capture and the truth of its run."""
    options = ("--truth", str(truth), "--fail-on", "never")
    command = [sys.executable, "-m", "iscsitrace", "check", str(capture), *options]
    return subprocess.run(command, check=False).returncode == 0
