"""A plugin of pytest: coverage records under the name of each test the lines that it executes, its fixtures apart."""

from __future__ import annotations

from collections.abc import Generator

import coverage
import pytest


def _under(context: str) -> None:
    measurement = coverage.Coverage.current()
    if measurement is not None:
        measurement.switch_context(context)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Lines of fixtures: other tests of the file may share what they made."""
    _under(f"{item.nodeid} (setup)")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Lines of the test itself."""
    _under(f"{item.nodeid} (call)")
    return (yield)


def pytest_sessionfinish() -> None:
    """A worker of xdist ends without the handlers in which coverage would save."""
    measurement = coverage.Coverage.current()
    if measurement is not None:
        measurement.stop()
        measurement.save()
