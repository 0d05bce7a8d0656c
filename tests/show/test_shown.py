"""What of a diagnosis is shown: subjects whose headlines are alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from iscsitrace.show.shown import Shown


def test_a_session_and_a_connection_of_the_same_number_are_not_alike() -> None:
    shown: Any = object.__new__(Shown)
    texts = {
        "session 0": "Session 0 is line-bound.",
        "session 1": "Session 1 is line-bound.",
        "connection 0": "Connection 0 is line-bound.",
        "connection 2": "Connection 2 is line-bound.",
        "connection 3": "Connection 3 is target-bound.",
    }
    shown.subjects = [(label, SimpleNamespace(headline=SimpleNamespace(text=text))) for label, text in texts.items()]
    assert shown.alike == {
        "session 0": ["session 1"],
        "connection 0": ["connection 2"],
        "connection 3": [],
    }
