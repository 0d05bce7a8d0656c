"""What a capture tells while it runs: lines on stderr, and on a terminal one that says how far it is."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from iscsitrace.cli.record.capture_files import numbered
from iscsitrace.cli.stop_signals import StopWish
from iscsitrace.wording.cells import text as printable
from iscsitrace.wording.quantities import SIZES

_DRAWN_EVERY_S = 0.5
_SLOW_LINES_A_SECOND = 5


class CaptureCaller:
    """Is asked by the core whether to go on, and for names of files."""

    def __init__(self, path: Path, wish: StopWish, *, is_quiet: bool) -> None:
        self._path = path
        self._wish = wish
        self._is_quiet = is_quiet
        self._line = not is_quiet and sys.stderr.isatty()
        self._drawn_s = 0.0
        self._is_drawn = False
        self._second = 0
        self._slow_lines = 0

    def watch(self, progress_json: str) -> bool:
        """Tells what happened; whether somebody wants the end."""
        progress = json.loads(progress_json)
        for event in progress["events"]:
            self._tell(event)
        if self._line and time.monotonic() - self._drawn_s >= _DRAWN_EVERY_S:
            self._drawn_s = time.monotonic()
            self._is_drawn = True
            click.echo(f"\r{_status(progress)}\x1b[K", err=True, nl=False)
        return self._wish.is_there

    def next_path(self, number: int) -> str:
        """The name of a file of a ring."""
        return str(numbered(self._path, number))

    def close(self) -> None:
        """Leaves the terminal as a line of its own needs it."""
        if self._is_drawn:
            self._is_drawn = False
            click.echo("\r\x1b[K", err=True, nl=False)

    def say(self, text: str) -> None:
        """One line on stderr."""
        self.close()
        click.echo(f"iscsitrace: {printable(text)}", err=True)

    def _tell(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "dropped":
            # never quiet about what is lost
            self.say(
                f"{event['interface']}: {event['count']} packets dropped, {event['total']} in all "
                "(a larger buffer: -B, fewer packets: -f, less of each: -s)"
            )
        elif kind == "warning":
            self.say(event["text"])
        elif self._is_quiet:
            return
        elif kind == "file":
            self.say(f"writing {'standard output' if event['path'] == '-' else event['path']}")
        elif kind == "portals":
            self.say(f"found iSCSI at {', '.join(event['portals'])}; capture filter now: {event['filter']}")
        elif kind == "slow":
            self._tell_slow(event["text"])

    def _tell_slow(self, text: str) -> None:
        """The first few of a second, and that there are more: a slow target gives thousands."""
        second = int(time.monotonic())
        if second != self._second:
            if self._slow_lines > _SLOW_LINES_A_SECOND:
                self.say(f"... and {self._slow_lines - _SLOW_LINES_A_SECOND} more in that second")
            self._second, self._slow_lines = second, 0
        self._slow_lines += 1
        if self._slow_lines <= _SLOW_LINES_A_SECOND:
            self.say(text)


def _status(progress: dict[str, Any]) -> str:
    text = (
        f"{progress['elapsed_ns'] / 1e9:.0f} s  {progress['written_count']} packets  "
        f"{progress['written_bytes'] / SIZES['MB']:.1f} MB  {progress['dropped_count']} dropped"
    )
    return text + (f"  {progress['slow_count']} slow tasks" if progress["slow_count"] else "")
