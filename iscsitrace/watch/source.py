"""What is watched: a growing file, a pipe, or an interface, whose packets a capture as child process hands over."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.tables.live_pass import SECOND_NS, Live, Settings

PIPE_LAG_MAX_NS = 2 * SECOND_NS
_PATIENCE_S = 5.0
"""For a capture to end when it is asked to."""


class Watched:
    """A live pass over what was named, and how to end it."""

    def __init__(
        self, live: Live, child: subprocess.Popen[bytes] | None, *, is_pipe: bool, words: IO[bytes] | None = None
    ) -> None:
        self.live = live
        self._child = child
        self._is_pipe = is_pipe
        self._words = words

    def last_words(self) -> str:
        """What the capture said, once it has ended."""
        if self._words is None:
            return ""
        self._words.seek(0)
        return self._words.read().decode(errors="replace").strip()

    def stop(self) -> None:
        """Ends it: a file at its end of now, a capture in order, a pipe at what came by now."""
        if self._child is None:
            self.live.stop(is_abrupt=self._is_pipe)
        elif self._child.poll() is None:
            # its last words are the interface statistics
            self._child.terminate()

    def close(self) -> int:
        """Waits for the capture; its exit code, 0 without one."""
        if self._child is None:
            return 0
        try:
            code = self._child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        return code

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
        self.close()
        if self._words is not None:
            self._words.close()


def open_source(name: str, settings: Settings, *, capture_options: Sequence[str] = ()) -> Watched:
    """A file that exists, ``-``, or an interface; InputInvalid for anything else.

    A file wins over an interface of the same name: ``./eth0`` is always a file.
    """
    pipe = replace(settings, lag_max_ns=PIPE_LAG_MAX_NS)
    if capture_options and (name == "-" or Path(name).exists()):
        raise InputInvalid(f"{' '.join(capture_options)}: only an interface takes these, {name} is captured already")
    if name == "-":
        return Watched(Live("-", pipe), None, is_pipe=True)
    path = Path(name)
    if path.exists():
        if path.is_fifo():
            return Watched(Live(path, pipe), None, is_pipe=True)
        return Watched(Live(path, settings), None, is_pipe=False)
    if name == "any" or name in {each for _, each in socket.if_nameindex()}:
        command = capture_command(name, settings.capture_filter, capture_options)
        return _capture(command, name, replace(pipe, capture_filter=None))
    raise InputInvalid(f"{name}: no such file, and no such interface ('iscsitrace interfaces' lists them)")


def capture_command(interface: str, capture_filter: str | None, options: Sequence[str]) -> list[str]:
    """The child that writes what it captures to its standard output."""
    filtered = ["-f", capture_filter] if capture_filter else []
    return [sys.executable, "-m", "iscsitrace", "capture", "-q", "-i", interface, *filtered, *options, "-w", "-"]


def _capture(command: list[str], name: str, settings: Settings) -> Watched:
    # what it says would go across the screen
    words = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the rest
    try:
        # in a session of its own: a Ctrl-C is for us, and we ask it to end
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, start_new_session=True)
    except OSError as error:
        words.close()
        raise ToolMissing(f"cannot capture on {name}: {error}") from error
    assert child.stdout is not None  # noqa: S101 -- asked for above
    # opened anew by the core, which then reads it without asking Python
    pipe = Path(f"/dev/fd/{child.stdout.fileno()}")
    return Watched(Live(pipe, settings, name=name), child, is_pipe=True, words=words)
