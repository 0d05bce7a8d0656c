"""What the tests of tables share: simulated runs."""

from __future__ import annotations

import pytest

from tests.support.runs import Runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))
