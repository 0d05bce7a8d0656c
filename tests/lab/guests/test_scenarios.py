"""Each scenario of guests is run, and tshark finds in its captures what the scenario says."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest

from bench.scenarios import Scenario, scenarios
from tests.support.guest_runs import judge

pytestmark = pytest.mark.needs_guests


@pytest.mark.parametrize("scenario", scenarios().values(), ids=operator.attrgetter("name"))
def test_scenario(scenario: Scenario, tmp_path: Path) -> None:
    scenario.run(tmp_path, print)
    judge(scenario, tmp_path)
