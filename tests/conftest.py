"""Tests that need root: without root they are skipped, in CI they fail; and they run at a higher priority.

They run in real time, and are reliable only if the hosts of their networks get a CPU when they need one.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.support.lab import going_first

_REASON = "network namespaces need root"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0 or os.environ.get("CI") == "true":
        return
    for item in items:
        if item.get_closest_marker("needs_root"):
            item.add_marker(pytest.mark.skip(reason=_REASON))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("needs_root") is None:
        return (yield)
    with going_first():
        return (yield)
