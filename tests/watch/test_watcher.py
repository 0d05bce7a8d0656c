"""How a watcher goes through a live pass, and what it adds up: with a pass made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from iscsitrace.measure import capture_health
from iscsitrace.watch import watcher
from iscsitrace.watch.watcher import Report, Watcher, _dropped, _for_display, _parts
from tests.support.tables_by_hand import table, with_waits


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
    cycles, waited = with_waits(
        [
            {"session": number, "command_first_ns": 100, "status_ns": None if latency is None else 100 + latency}
            for number, latency in rows
        ]
    )
    sessions = cycles.raw("session")
    found = {number: own.latencies_ns.tolist() for number, own in _parts(waited, sessions).items()}
    assert found == {0: [7], 1: [5, 3], 2: []}
    assert _parts(waited.select(sessions < 0), sessions[:0]) == {}


def test_percentiles_of_a_display_are_exact_up_to_a_thousand() -> None:
    many = _for_display()
    many.add(np.ma.MaskedArray(np.arange(1, 1025)))
    assert many.percentiles() == {"n": 1024, "p50": 512, "p95": 973, "p99": 1014, "max": 1024}


class Reported:
    """A watcher whose looks are made by hand, and what it asks of its totals and findings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_findings: bool = True) -> None:
        self.asked: list[str] = []
        live: Any = SimpleNamespace(pace=SimpleNamespace(is_reduced=False), recent=lambda: "recent")
        self.live, self.own = live, Watcher(live, has_findings=has_findings)
        for name in ("_connections", "_sessions", "_health"):
            monkeypatch.setattr(self.own, name, lambda *_: [])
        monkeypatch.setattr(watcher, "transports_of", lambda *_: {})
        monkeypatch.setattr(watcher, "load_of", lambda cycles, waited, length_ns, in_flight: length_ns)
        self.own.totals = self.note("add", "add_turnarounds", "forget", "forget_sessions")
        self.own.findings = self.note(
            "update", "forget", current=(), headline=None, stories=(), left_out=0, is_due=lambda now_ns: now_ns >= 5
        )

    def note(self, *names: str, **known: Any) -> Any:
        return SimpleNamespace(**{name: lambda *_, name=name: self.asked.append(name) for name in names} | known)

    def report(self, to_ns: int, packet_count: int, *, forgotten: int = 0, is_last: bool = False) -> Report:
        trace = SimpleNamespace(
            table=table, cycles=table("cycles"), sessions=table("sessions"), senders=None, counters=None,
            connections=table("connections"), budget=table("budget"), packet_count=packet_count, inputs=[],
        )  # fmt: skip
        gone = table("connections", *({"connection": number} for number in range(forgotten)))
        view: Any = SimpleNamespace(
            trace=trace, from_ns=to_ns - 3, to_ns=to_ns, settled_ns=0, turnaround_operation=None, turnaround_ns=None,
            forgotten=SimpleNamespace(connections=gone, inputs=[]), now=[], late_count=4,
        )  # fmt: skip
        self.asked.clear()
        return self.own._report(view, is_last=is_last)


def test_packets_of_a_report_are_those_since_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Reported(monkeypatch)
    reports = [made.report(to_ns, count) for to_ns, count in ((1, 5), (2, 5), (3, 12))]
    assert [(each.packet_count, each.new_packets) for each in reports] == [(5, 5), (5, 0), (12, 7)]
    # an interval of 3 ns
    assert [(each.whole, each.late_count, each.dropped, each.is_last) for each in reports] == [(3, 4, None, False)] * 3
    assert made.own.last is reports[-1]


def test_sessions_are_forgotten_with_their_connections_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Reported(monkeypatch)
    for forgotten, is_last, is_asked in ((0, False, False), (1, False, True), (0, True, True)):
        assert made.report(1, 0, forgotten=forgotten, is_last=is_last).is_last == is_last
        assert ("forget_sessions" in made.asked) == is_asked


def test_a_diagnosis_is_made_when_it_is_due_but_not_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Reported(monkeypatch)
    for to_ns, is_last, is_reduced, asked in (
        (4, False, False, []), (5, False, False, ["update"]), (5, True, False, []), (5, False, True, ["forget"]),
    ):  # fmt: skip
        made.live.pace.is_reduced = is_reduced
        made.report(to_ns, 0, is_last=is_last)
        # totals come first, with a forget of their own
        own = ["add", "add_turnarounds", "forget", *(["forget_sessions"] if is_last else [])]
        assert made.asked == own + asked
    silent = Reported(monkeypatch, has_findings=False)
    silent.report(9, 0)
    assert "update" not in silent.asked
