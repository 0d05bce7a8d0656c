"""The live view on a terminal: the board of the latest report, and keys."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.driver import Driver
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from iscsitrace.errors import IscsitraceError, OutputExists
from iscsitrace.recording.silence import Silence
from iscsitrace.watch.board import SORTS, Choice, render, sorted_lines, style_of
from iscsitrace.watch.exposition import Exposition
from iscsitrace.watch.watcher import Report, Watcher
from iscsitrace.wording.parts import PARTS

WIDTH, HEIGHT = 130, 200
_TRIES = 1000


def save(report: Report, choice: Choice, folder: Path) -> tuple[Path, Path]:
    """Writes ``watch-TIME.json`` and ``watch-TIME.txt``, with a number if they exist; returns both paths.

    OSError if the folder is not writable.
    """
    stem = f"watch-{report.to_ns // 10**9}"
    text = "\n".join(line.plain.rstrip() for line in render(report, choice, WIDTH, HEIGHT)) + "\n"
    document = json.dumps(report.as_dict(), indent=2, allow_nan=False) + "\n"
    for attempt in range(_TRIES):
        name = stem if not attempt else f"{stem}-{attempt}"
        paths = folder / f"{name}.json", folder / f"{name}.txt"
        try:
            for path, content in zip(paths, (document, text), strict=True):
                _write_new(path, content)
        except FileExistsError:
            continue
        return paths
    raise OutputExists(f"{folder / stem} exists {_TRIES} times; nothing was written")


def _write_new(path: Path, content: str) -> None:
    # names and addresses are private
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(content)


_REDRAW_S = 0.5
_LOOK_S = 0.05
_HELP = """\
up down       select a session or connection
enter         show the connections of the session; escape: back
s S           sort by the next or the previous column
space p       pause the display; reading continues
w             save the display to watch-TIME.json and watch-TIME.txt
q             quit and print the totals
h ?           show this help

A command counts in the interval in which its last packet was read. QD is the queue depth at issue. Idle is the share of
the time without payload on the line. The bar is the time breakdown:
"""


class Help(ModalScreen[None]):
    """The help: keys, and the letters of the bar."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,h,question_mark,enter,space", "dismiss", "Close")]
    DEFAULT_CSS = """
    Help { align: center middle; }
    Help VerticalScroll { width: 90%; height: auto; max-height: 90%; border: solid $primary; background: $surface; }
    """

    def compose(self) -> ComposeResult:
        """Composes the text."""
        text = Text(_HELP)
        for part in PARTS:
            text.append(f" {part.letter} ", style=style_of(part))
            text.append(f" {part.label}: {part.meaning}\n")
        with VerticalScroll():
            yield Static(text)


class WatchScreen(App[None]):
    """The whole terminal."""

    TITLE = "iscsitrace watch"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "end", "Quit"),
        Binding("space,p", "pause", "Pause"),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort back", show=False),
        Binding("up,k", "pick(-1)", "Up", show=False),
        Binding("down,j", "pick(1)", "Down", show=False),
        Binding("enter", "open", "Connections"),
        Binding("escape,backspace", "close", "Back"),
        Binding("w", "snapshot", "Save"),
        Binding("h,question_mark", "help", "Help"),
    ]
    DEFAULT_CSS = "WatchScreen #board { height: 1fr; width: 100%; }"

    def __init__(
        self,
        watcher: Watcher,
        source: str,
        *,
        exposition: Exposition | None = None,
        folder: Path | None = None,
        until_s: float | None = None,
        silence: Silence | None = None,
    ) -> None:
        super().__init__()
        self.watcher = watcher
        self.choice = Choice(source=source)
        self.shown: Report | None = None
        self.problem: IscsitraceError | None = None
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._is_ending = Event()
        self._reader = Thread(target=self._read, name="reader")
        self._exposition = exposition
        self._folder = folder or Path()
        self._until = None if until_s is None else time.monotonic() + until_s
        self._heard = time.monotonic()
        self._silence = silence

    def get_driver_class(self) -> type[Driver]:
        """The driver of this platform, on standard output: its default is standard error, which may be a file."""
        base: Any = super().get_driver_class()

        class OnStandardOutput(base):  # type: ignore[misc]
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                if getattr(self, "_file", None) is sys.__stderr__:
                    self._file = sys.__stdout__

        return OnStandardOutput

    def compose(self) -> ComposeResult:
        """Composes the board and the footer of keys."""
        yield Static(id="board")
        yield Footer()

    def on_mount(self) -> None:
        """Starts the thread that reads."""
        self.set_interval(_REDRAW_S, self.draw)
        self.set_interval(_LOOK_S, self.look)
        self._reader.start()

    def _read(self) -> None:
        """Reads until the input or the display ends; runs in a separate thread."""
        try:
            while not self.watcher.is_over and not self._is_ending.is_set():
                report = self.watcher.step()
                if report:
                    self._reports.put(report)
        except IscsitraceError as problem:
            self.problem = problem

    def look(self) -> None:
        """Takes the reports since the last call."""
        while not self._reports.empty():
            self.take(self._reports.get())
        self._listen(has_iscsi=None)
        if self.problem or (self._until is not None and time.monotonic() >= self._until):
            self.exit()
        elif self.watcher.is_over and not self.choice.is_over and self._reports.empty():
            self.choice.is_over = True
            self.choice.note = "the input has ended: q quits and prints the totals"
            self.draw()

    def close(self) -> None:
        """Stops the reading thread, after the display has ended."""
        self._is_ending.set()
        self._reader.join()

    def take(self, report: Report) -> None:
        """Takes a new report."""
        self._heard = time.monotonic()
        self._listen(has_iscsi=bool(report.connections))
        if self._exposition:
            self._exposition.update(report, self.watcher)
        # the last interval may be short: keep showing the one before
        if not self.choice.is_paused and not (report.is_last and self.shown):
            self.shown = report
        self.draw()

    def _listen(self, *, has_iscsi: bool | None) -> None:
        """Why nothing is seen, once."""
        silence = self._silence and self._silence.line(self.watcher.packet_count, has_iscsi=has_iscsi)
        self.choice.note = silence or self.choice.note

    def draw(self) -> None:
        """Redraws the board."""
        board = self.query_one("#board", Static)
        self.choice.quiet_s = time.monotonic() - self._heard
        lines = render(self.shown, self.choice, max(board.size.width, 20), max(board.size.height, 5))
        board.update(Text("\n").join(lines))

    def action_end(self) -> None:
        """Ends the display."""
        self.exit()

    def action_pause(self) -> None:
        """Pauses or resumes the display."""
        self.choice.is_paused = not self.choice.is_paused
        if not self.choice.is_paused and self.watcher.last:
            self.shown = self.watcher.last
        self.draw()

    def action_sort(self, step: int) -> None:
        """Sorts by another column."""
        place = (SORTS.index(self.choice.sort) + step) % len(SORTS)
        self.choice.sort = SORTS[place]
        self.draw()

    def action_pick(self, step: int) -> None:
        """Selects another line."""
        lines = sorted_lines(self.shown, self.choice) if self.shown else []
        self.choice.row = min(max(self.choice.row + step, 0), max(len(lines) - 1, 0))
        self.draw()

    def action_open(self) -> None:
        """Shows the connections of the selected session."""
        lines = sorted_lines(self.shown, self.choice) if self.shown else []
        if self.choice.session is None and lines:
            self.choice.session = lines[min(self.choice.row, len(lines) - 1)].number
            self.choice.row = 0
        self.draw()

    def action_close(self) -> None:
        """Shows all sessions."""
        self.choice.session, self.choice.row = None, 0
        self.draw()

    def action_snapshot(self) -> None:
        """Saves the display to files."""
        if self.shown is None:
            return
        try:
            document, _ = save(self.shown, self.choice, self._folder)
            self.choice.note = f"written: {document} and .txt"
        except (OSError, IscsitraceError) as problem:
            self.choice.note = f"not written: {problem}"
        self.draw()

    def action_help(self) -> None:
        """Shows the help."""
        self.push_screen(Help())
