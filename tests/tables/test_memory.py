"""What is given back, and when."""

from __future__ import annotations

import pytest

from iscsitrace import _core
from iscsitrace.tables import memory


def test_a_process_that_runs_for_days_gives_back_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s, clock = (1000.0, 1010.0, 1059.5, 1060.5, 1061.5, 1120.0, 1121.0, 1300.0), list[float]()
    given_at = list[float]()

    def monotonic() -> float:
        clock.append(times_s[len(clock)])
        return clock[-1]

    monkeypatch.setattr("time.monotonic", monotonic)
    monkeypatch.setattr(_core, "give_back", lambda: given_at.append(clock[-1]))
    trimmer = memory.Trimmer()
    for _ in times_s[1:]:
        trimmer.pass_interval()
    assert given_at == [1060.5, 1121.0, 1300.0]
