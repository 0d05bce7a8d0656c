"""This process as one that makes things and is ended: names that tell whose leftovers things are, and signals.

Names contain the creating process, to distinguish leftovers of a killed process from things in use. Each signal that
ends a run unwinds the program, and none interrupts the clean-up. Signal handlers belong to the main thread; in other
threads these functions do nothing.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_OURS = re.compile(r"iscsitrace-(\d+)-(\d+)-")


def prefix() -> str:
    """The prefix of this process's names: process id and start time in clock ticks, since process ids are reused."""
    process_id = os.getpid()
    return f"iscsitrace-{process_id}-{start_ticks(process_id)}-"


def is_left_over(name: str) -> bool:
    """Whether the process that created this is gone. False for other names."""
    match = _OURS.match(name)
    return match is not None and start_ticks(int(match[1])) != int(match[2])


def start_ticks(process_id: int) -> int | None:
    """The start time of a process in clock ticks; None if it does not exist or has ended."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name in parentheses may contain any character
    words = status.rpartition(")")[2].split()
    is_dead = words[0] in {"Z", "X"}
    return None if is_dead else int(words[19])


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt, so that the run is cleaned up.

    Handlers that are already set stay.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                previous[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Signals that arrive during the block act after it."""
    arrived: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            handler = signal.getsignal(number)
            if handler is not None:
                previous[number] = handler
                signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for arrival in arrived:
            signal.raise_signal(arrival)
