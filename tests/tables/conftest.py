"""What the tests of tables share: tshark's view of recorded captures."""

from __future__ import annotations

import os

import pytest

from tests.support import tshark
from tests.support.runs import Runs


@pytest.fixture(scope="session")
def tshark_packets(tmp_path_factory: pytest.TempPathFactory) -> tshark.Packets:
    """Shared by the workers of a test run."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "tshark"
    folder.mkdir(exist_ok=True)
    return tshark.Packets(folder)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))
