"""Ctrl-C and SIGTERM: the first stops a run in order, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopWish:
    """Whether a signal arrived."""

    def __init__(self) -> None:
        self.is_there = False


@contextmanager
def wishing() -> Iterator[StopWish]:
    """Record the first signal; the second raises KeyboardInterrupt. Only the main thread gets signals."""
    wish = StopWish()

    def remember(number: int, frame: FrameType | None) -> None:
        if wish.is_there:
            raise KeyboardInterrupt
        wish.is_there = True

    previous = {}
    if threading.current_thread() is threading.main_thread():
        previous = {number: signal.signal(number, remember) for number in _SIGNALS}
    try:
        yield wish
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
