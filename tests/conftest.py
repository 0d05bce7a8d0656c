"""Tests that need root: without root they are skipped, in CI they fail.

Those marked `needs_root` run in real time, and are reliable only if the hosts of their networks get a CPU when they
need one: they run at a higher priority.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import hypothesis
import pytest

from tests.support import tshark
from tests.support.lab import going_first

_REASON = "network namespaces and third-party targets need root"


def pytest_configure() -> None:
    """Sets what all tests share."""
    # a shell starts background jobs with SIGINT ignored, which child processes inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # a time limit for each example measures the load of the machine
    hypothesis.settings.register_profile("untimed", deadline=None)
    hypothesis.settings.load_profile("untimed")


def pytest_collection_finish() -> None:
    """Keeps the collector of garbage from visiting all tests: a sixth of the time of tests with many objects."""
    gc.set_threshold(50_000, 20, 20)
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "needs_guests" not in config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("needs_guests")]
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)
    if os.geteuid() == 0 or os.environ.get("CI") == "true":
        return
    for item in items:
        if any(map(item.get_closest_marker, ("needs_root", "needs_peers", "needs_guests"))):
            item.add_marker(pytest.mark.skip(reason=_REASON))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("needs_root") is None:
        return (yield)
    with going_first():
        return (yield)


@pytest.fixture(scope="session")
def tshark_packets(tmp_path_factory: pytest.TempPathFactory) -> tshark.Packets:
    """tshark's view of recorded captures, shared by the workers of a test run."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "tshark"
    folder.mkdir(exist_ok=True)
    return tshark.Packets(folder)
