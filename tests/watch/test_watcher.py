"""How a watcher goes through a live pass, and what it adds up: with a pass made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.analysis.measures import capture_health
from iscsitrace.watch.watcher import Watcher, _dropped, _for_display, _parts
from tests.support.tables_by_hand import table


class Live:
    """Stands for a live pass: these steps, one after the other."""

    def __init__(self, *steps: str) -> None:
        self.steps = list(steps)
        self.waits: list[float] = []

    def advance(self, patience_s: float) -> str:
        self.waits.append(patience_s)
        return self.steps.pop(0)

    def look(self) -> str:
        return "view"

    def finish(self) -> str:
        return "last"


def test_a_report_comes_at_each_look_and_once_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    live: Any = Live("nothing", "look", "nothing", "look", "end", "end")
    monkeypatch.setattr(Watcher, "_report", lambda self, view, *, is_last: (view, is_last))
    own = Watcher(live)
    seen: list[Any] = []
    own.run(seen.append)
    assert seen == [("view", False), ("view", False), ("last", True)]
    assert own.is_over
    assert own.step() is None
    assert set(live.waits) == {0.2}


def test_counters_show_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    live: Any = Live()
    own = Watcher(live)
    monkeypatch.setattr(
        capture_health, "by_name", lambda rows: [{"name": name, "count": count} for name, count in rows]
    )
    new = [
        [(row["name"], row["new"]) for row in own._health(counters)]
        for counters in ([("gap", 5)], [("gap", 7), ("cut", 2)], [("gap", 7), ("cut", 3)])
    ]
    assert new == [[("gap", 5)], [("gap", 2), ("cut", 2)], [("gap", 0), ("cut", 1)]]


def test_packets_dropped_are_unknown_unless_an_interface_reports_them() -> None:
    def inputs(*dropped: int | None) -> list[dict[str, Any]]:
        return [{"interfaces": [{"dropped": each}]} for each in dropped]

    assert _dropped([{"interfaces": []}]) is None
    assert _dropped(inputs(None, None)) is None
    assert _dropped(inputs(0, None)) == 0
    assert _dropped(inputs(3, None, 4)) == 7


def test_known_latencies_by_session() -> None:
    rows = [(1, 5), (0, 7), (1, None), (1, 3), (2, None)]
    cycles = table(
        "cycles",
        *(
            {"session": number, "command_first_ns": 100, "status_ns": None if latency is None else 100 + latency}
            for number, latency in rows
        ),
    )
    found = {number: values.tolist() for number, values in _parts(cycles, "session").items()}
    assert found == {0: [7], 1: [5, 3]}
    assert _parts(cycles.select([]), "session") == {}


def test_percentiles_of_a_display_are_exact_up_to_a_thousand() -> None:
    many = _for_display()
    many.add(np.ma.MaskedArray(np.arange(1, 1025)))
    assert many.percentiles() == {"p50": 512, "p95": 973, "p99": 1014, "max": 1024}
