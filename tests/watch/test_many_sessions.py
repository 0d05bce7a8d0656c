"""Text and JSON of an interval are bounded: of many sessions they list the most important, and count the others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from iscsitrace.diagnosis.headline import Headline
from iscsitrace.watch import figures, findings
from iscsitrace.watch.board import lines_of
from iscsitrace.watch.figures import NO_LOAD, Hang, WatchLine
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation
from tests.watch.test_past_lines import reports_of

SECOND_NS = 10**9


def line(number: int, commands: int = 0, hangs_ns: int = 0, open_task_count: int = 0) -> WatchLine:
    load = replace(NO_LOAD, task_count=commands)
    return WatchLine("session", number, load, None, open_task_count, hang=Hang(hangs_ns, hangs_ns))


def test_those_that_hang_come_first_then_the_busiest_then_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line(0, hangs_ns=2 * SECOND_NS), line(1), line(2, commands=9), line(3, hangs_ns=5), line(4)]
    for most, numbers in ((5, [0, 1, 2, 3, 4]), (3, [0, 2, 4]), (2, [0, 2]), (1, [0])):
        monkeypatch.setattr(figures, "SHOWN_MAX", most)
        assert [each.number for each in figures.busiest(lines)] == numbers


def test_an_interval_lists_the_busiest_and_counts_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    conversation = Conversation()
    for count in (4, 1, 8, 2):
        conversation.session().login().read(count=count)
    capture = conversation.run()
    file = write_pcapng(tmp_path / "many.pcapng", capture.packets, capture.path.link_type)
    monkeypatch.setattr(figures, "SHOWN_MAX", 2)
    (report,) = [each for each in reports_of(file, 60 * SECOND_NS) if each.whole.task_count]
    document, text = report.as_dict(), lines_of(report)
    for kind in ("session", "connection"):
        assert [row[kind] for row in document[f"{kind}s"]] == [0, 2]
    assert document["not_listed"] == {"sessions": 2, "connections": 2, "sessions_with_findings": 0}
    assert document["all"]["task_count"] == 15
    assert sum(each.startswith("  session ") for each in text) == 2
    assert "  2 more sessions, less busy than these" in text


def test_of_many_sessions_with_findings_the_worst_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Sessions(dict[int, Any]):
        verdicts: ClassVar = {
            number: SimpleNamespace(weight=(weight, 0.0, 0.0)) for number, weight in enumerate((1, 3, 0, 2))
        }

        def __getitem__(self, number: int) -> Any:
            made.append(number)
            return super().__getitem__(number)

    found = SimpleNamespace(name="slow", severity="warning", share=0.5, cost_in_words="50 %", text="text")
    sessions = Sessions({number: SimpleNamespace(findings=[found]) for number in range(4)})
    diagnosis = SimpleNamespace(sessions=sessions, stories=[], headline=Headline("down"))
    monkeypatch.setattr(findings, "SHOWN_MAX", 2)
    monkeypatch.setattr(findings, "examine", lambda table, has_mirrors, start_ns: diagnosis)
    monkeypatch.setattr(findings, "current", lambda recent, now_ns: None)
    own = findings.CurrentFindings()
    own.update(SimpleNamespace(start_ns=0), 1)  # type: ignore[arg-type]
    assert [each.session for each in own.current] == [1, 3]
    assert own.left_out == 2
    # no sentence is made for the others
    assert made == [1, 3]
