"""Progress of a capture: lines on stderr, and on a terminal a status line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from iscsitrace.cli.record.service_manager import ServiceManager
from iscsitrace.cli.stop_signals import StopWish
from iscsitrace.recording.file_names import numbered
from iscsitrace.recording.silence import Silence, listening
from iscsitrace.show.line import say
from iscsitrace.wording.amounts import count
from iscsitrace.wording.quantities import SIZES

_DRAWN_EVERY_S = 0.5
_SLOW_LINES_A_SECOND = 5


class CaptureCaller:
    """Called by the core: decides whether to continue, and names files."""

    def __init__(self, path: Path, wish: StopWish, *, is_quiet: bool, earlier_number: int = 0) -> None:
        self._path = path
        self._earlier_number = earlier_number
        self._wish = wish
        self._is_quiet = is_quiet
        self._line = not is_quiet and sys.stderr.isatty()
        self._drawn_s = 0.0
        self._is_drawn = False
        self._second = 0
        self._slow_lines = 0
        self._manager = ServiceManager()
        self._listening = ""
        self._silence: Silence | None = None

    def listen(self, names: Sequence[str], capture_filter: str | None, *, is_learning: bool) -> None:
        """What is captured from interfaces: to be said once they are open, and when nothing arrives."""
        self._listening = listening(names, capture_filter, is_learning=is_learning)
        self._silence = Silence(names, capture_filter, is_learning=is_learning)

    def watch(self, progress_json: str) -> bool:
        """Print the events; return whether to stop."""
        self._manager.alive()
        progress = json.loads(progress_json)
        for event in progress["events"]:
            self._tell(event)
        if self._silence and not self._is_quiet:
            seen = max(progress["seen_count"], progress["written_count"])
            if line := self._silence.line(seen, has_iscsi=seen > 0):
                self.say(line)
        if self._line and time.monotonic() - self._drawn_s >= _DRAWN_EVERY_S:
            self._drawn_s = time.monotonic()
            self._is_drawn = True
            click.echo(f"\r{_status(progress)}\x1b[K", err=True, nl=False)
        return self._wish.is_there

    def next_path(self, number: int) -> str:
        """The name of the next file of a ring: its numbers go on from the last capture's."""
        return str(numbered(self._path, self._earlier_number + number))

    def close(self) -> None:
        """Erase the status line."""
        if self._is_drawn:
            self._is_drawn = False
            click.echo("\r\x1b[K", err=True, nl=False)

    def end(self) -> None:
        """The capture is over."""
        self._manager.stopping()
        self.close()

    def say(self, text: str) -> None:
        """Print one line on stderr."""
        self.close()
        say(f"iscsitrace: {text}", err=True)

    def _tell(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "dropped":
            # printed with -q, too: packets are lost
            self.say(
                f"{event['interface']}: {event['count']} packets dropped, {event['total']} in total (try a larger "
                "buffer: -B, fewer packets: -f, or fewer bytes of each: -s)"
            )
        elif kind == "warning":
            self.say(event["text"])
        elif self._is_quiet:
            return
        elif kind == "file":
            self.say(f"writing {'standard output' if event['path'] == '-' else event['path']}")
            if self._listening:
                self.say(self._listening)
                self._listening = ""
        elif kind == "portals":
            self.say(f"found iSCSI at {', '.join(event['portals'])}; capture filter now: {event['filter']}")
        elif kind == "slow":
            self._tell_slow(event["text"])

    def _tell_slow(self, text: str) -> None:
        """The first few of each second, and the number of the others: a slow target has thousands."""
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
    found = progress["slow_count"]
    return text + (f"  {count(found, 'command')} met the trigger" if found else "")
