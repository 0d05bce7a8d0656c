"""The input of a watch: a growing file, a pipe, or an interface that a child process captures."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.recording.file_names import of_ring
from iscsitrace.tables.passes import SECOND_NS, Live, Settings

PIPE_LAG_MAX_NS = 2 * SECOND_NS
_PATIENCE_S = 5.0
"""Time for a capture to end after SIGTERM."""


class Watched:
    """A live pass over the input, and how to end it."""

    def __init__(
        self, live: Live, child: subprocess.Popen[bytes] | None, *, is_pipe: bool, words: IO[bytes] | None = None
    ) -> None:
        self.live = live
        self._child = child
        self._is_pipe = is_pipe
        self._words = words

    @property
    def is_interface(self) -> bool:
        """Whether a capture runs, and not a file or a pipe is read."""
        return self._child is not None

    @property
    def is_open_interface(self) -> bool:
        """Whether it does, and has opened the interface: it has described it then."""
        return self.is_interface and any(each["interfaces"] for each in self.live.inputs)

    def last_message(self) -> str:
        """The messages of the capture, after it has ended."""
        if self._words is None:
            return ""
        self._words.seek(0)
        return self._words.read().decode(errors="replace").strip()

    def stop(self) -> None:
        """Ends the input: a file at its current end, a capture by SIGTERM, a pipe at once."""
        if self._child is None:
            self.live.stop(is_abrupt=self._is_pipe)
        elif self._child.poll() is None:
            # the capture then writes its interface statistics
            self._child.terminate()

    def close(self) -> int:
        """Waits for the capture; returns its exit code, or 0 without a capture."""
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


def open_source(
    name: str,
    settings: Settings,
    *,
    capture_options: Sequence[str] = (),
    confine: Callable[[Sequence[int]], None] = lambda _: None,
) -> Watched:
    """A file that exists, ``-``, or an interface; InputInvalid for anything else.

    ``confine`` is called before the first thread reads, and after a capture was started, with the processes that the
    watch ends.
    The name of a ring, as `capture -w` has it, is the last of its files. A file takes precedence over an interface of
    the same name: ``./eth0`` is always a file.
    """
    pipe = replace(settings, lag_max_ns=PIPE_LAG_MAX_NS)
    if capture_options and (name == "-" or Path(name).exists()):
        raise InputInvalid(f"{' '.join(capture_options)}: only an interface takes these; {name} is captured already")
    if name == "-":
        confine(())
        return Watched(Live("-", pipe), None, is_pipe=True)
    path = Path(name)
    if not path.exists() and path.suffix and path.parent.is_dir() and (ring := of_ring(path)):
        path = ring[-1]
    if path.exists():
        confine(())
        if path.is_fifo():
            return Watched(Live(path, pipe), None, is_pipe=True)
        return Watched(Live(path, settings), None, is_pipe=False)
    if name == "any" or name in {each for _, each in socket.if_nameindex()}:
        command = capture_command(name, settings.capture_filter, capture_options)
        return _capture(command, name, replace(pipe, capture_filter=None), confine)
    raise InputInvalid(f"{name}: no such file, and no such interface ('iscsitrace interfaces' lists them)")


def capture_command(interface: str, capture_filter: str | None, options: Sequence[str]) -> list[str]:
    """The child process that writes its capture to standard output."""
    filtered = ["-f", capture_filter] if capture_filter else []
    return [sys.executable, "-P", "-m", "iscsitrace", "capture", "-q", "-i", interface, *filtered, *options, "-w", "-"]


def _capture(
    command: list[str], name: str, settings: Settings, confine: Callable[[Sequence[int]], None] = lambda _: None
) -> Watched:
    # its messages would disturb the screen
    words = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the rest
    try:
        # in a separate session: Ctrl-C ends the watch, and the watch ends the child
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, start_new_session=True)
    except OSError as error:
        words.close()
        raise ToolMissing(f"cannot capture on {name}: {error}") from error
    confine((child.pid,))
    assert child.stdout is not None  # noqa: S101 -- requested above
    # the core opens it again and reads it without Python
    pipe = Path(f"/dev/fd/{child.stdout.fileno()}")
    return Watched(Live(pipe, settings, name=name), child, is_pipe=True, words=words)
