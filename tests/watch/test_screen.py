"""What the screen does with reports and keys, without a terminal; and the files of a snapshot."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.errors import InputInvalid, OutputExists
from iscsitrace.tables.passes import SECOND_NS
from iscsitrace.watch import screen
from iscsitrace.watch.board import Choice
from iscsitrace.watch.screen import WatchScreen
from tests.watch.test_board import report, session


class Screen(WatchScreen):
    """A screen that notes when it would draw or end."""

    def __init__(self, **options: Any) -> None:
        self.drawn, self.ended = 0, 0
        watcher: Any = SimpleNamespace(is_over=False, last=None)
        super().__init__(watcher, "eth0", **options)

    def draw(self) -> None:
        self.drawn += 1

    def exit(self, *_: Any, **__: Any) -> None:
        self.ended += 1


def test_a_paused_display_takes_no_report_until_it_goes_on() -> None:
    screen, one, two = Screen(), report(), report(session(0))
    screen.take(one)
    assert (screen.shown, screen.drawn) == (one, 1)
    screen.action_pause()
    screen.take(two)
    assert screen.shown is one
    screen.watcher.last = two
    screen.action_pause()
    assert screen.shown is two
    assert screen.choice.is_paused is False


def test_the_last_interval_is_shown_only_if_it_is_the_first() -> None:
    screen, one, last = Screen(), report(), report(is_last=True)
    screen.take(last)
    assert screen.shown is last
    screen.take(one)
    screen.take(last)
    assert screen.shown is one


def test_the_display_ends_at_its_time_or_at_a_problem_and_stays_at_the_end_of_the_input() -> None:
    screen = Screen(until_s=1_000.0)
    screen.look()
    assert (screen.ended, screen.choice.is_over, screen.drawn) == (0, False, 0)
    screen.problem = InputInvalid("broken")
    screen.look()
    assert screen.ended == 1
    late = Screen(until_s=0.0)
    late.look()
    assert late.ended == 1
    over = Screen()
    over.watcher.is_over = True  # type: ignore[misc]
    for _ in range(2):
        over.look()
    assert (over.ended, over.choice.is_over, over.drawn) == (0, True, 1)
    assert over.choice.note == "the input has ended: q quits and prints the totals"


def test_silence_is_counted_from_the_last_report(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(time, "monotonic", lambda: 70.0)
    screen.take(report())
    shown: list[Any] = []
    board: Any = SimpleNamespace(size=SimpleNamespace(width=0, height=0), update=shown.append)
    monkeypatch.setattr(screen, "query_one", lambda *_: board)
    monkeypatch.setattr(time, "monotonic", lambda: 72.5)
    WatchScreen.draw(screen)
    assert screen.choice.quiet_s == 2.5
    # of a terminal without a size 20 columns and 5 lines
    lines = shown[0].plain.split("\n")
    assert (len(lines), max(map(len, lines))) == (5, 20)


def test_the_selected_row_stays_within_the_table() -> None:
    screen = Screen()
    screen.action_pick(1)
    assert screen.choice.row == 0
    screen.shown = report(*(session(number) for number in range(3)))
    rows = []
    for step in (1, 1, 1, -1, -1, -1):
        screen.action_pick(step)
        rows.append(screen.choice.row)
    assert rows == [1, 2, 2, 1, 0, 0]


def test_a_session_is_opened_and_closed() -> None:
    screen = Screen()
    screen.action_open()
    assert screen.choice.session is None
    screen.shown = report(session(4), session(7))
    for row, opened in ((0, 4), (1, 7), (9, 7)):
        screen.choice.row = row
        screen.action_open()
        assert (screen.choice.session, screen.choice.row) == (opened, 0)
        # it stays open
        screen.choice.row = 1
        screen.action_open()
        assert (screen.choice.session, screen.choice.row) == (opened, 1)
        screen.action_close()
        assert (screen.choice.session, screen.choice.row) == (None, 0)


def test_a_snapshot_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    screen = Screen(folder=tmp_path / "missing")
    screen.action_snapshot()
    assert (screen.choice.note, screen.drawn) == ("", 0)
    screen.shown = report()
    screen.action_snapshot()
    assert screen.choice.note.startswith("not written: ")
    assert screen.drawn == 1


def test_a_snapshot_is_130_columns_wide_and_has_200_lines_at_most(tmp_path: Path) -> None:
    counter = {"name": "odd", "severity": "warning", "count": 2, "new": 0, "first_frame": None, "meaning": "odd"}
    sessions = (session(number) for number in range(300))
    of = report(*sessions, counters=[counter] * 300, to_ns=7 * SECOND_NS + 999_999_999)
    document, text = screen.save(of, Choice(source="eth0"), tmp_path)
    assert (document.name, text.name) == ("watch-7.json", "watch-7.txt")
    lines = text.read_text().split("\n")
    # the file ends with a line's end
    assert (max(map(len, lines)), len(lines) - 1) == (130, 200)
    assert json.loads(document.read_text()) == of.as_dict()


def test_snapshots_of_one_second_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "_TRIES", 3)
    names = [screen.save(report(), Choice(), tmp_path)[1].name for _ in range(3)]
    assert names == ["watch-1.txt", "watch-1-1.txt", "watch-1-2.txt"]
    with pytest.raises(OutputExists, match="watch-1 exists 3 times; nothing was written"):
        screen.save(report(), Choice(), tmp_path)
