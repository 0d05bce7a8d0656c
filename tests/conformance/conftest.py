"""The runs of conversations, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conversations import CONVERSATIONS, Conversation, made


@pytest.fixture(scope="session", params=CONVERSATIONS, ids=str)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Conversation, Path]:
    """A conversation, and the folder with its runs ``breaking`` and ``legal``."""
    folder = tmp_path_factory.mktemp(str(request.param))
    made(request.param.breaking, folder / "breaking")
    made(request.param.legal, folder / "legal")
    return request.param, folder
