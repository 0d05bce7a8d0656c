"""Signals that end a run: each unwinds the program, and none interrupts the clean-up.

Signal handlers belong to the main thread. In other threads these functions do nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
