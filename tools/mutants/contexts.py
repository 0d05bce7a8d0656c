"""A pytest plugin: coverage records the lines of each test under its name, and those of its fixtures separately."""

from __future__ import annotations

import coverage
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lines of fixtures: other tests of the file may share their results."""
    _measurement().switch_context(f"{item.nodeid} (setup)")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Lines of the test itself."""
    _measurement().switch_context(f"{item.nodeid} (call)")


def pytest_sessionfinish() -> None:
    """Save: a worker of xdist exits without the handlers in which coverage saves its data."""
    _measurement().save()


def _measurement() -> coverage.Coverage:
    measurement = coverage.Coverage.current()
    assert measurement is not None  # noqa: S101 (the environment has started it)
    return measurement
