"""What becomes of freed memory: kept for the next columns, or given back.

What is given back is a third of what the diagnosis of ten thousand sessions takes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from iscsitrace import _core

if TYPE_CHECKING:
    from iscsitrace.tables.table import Source

_MANY_SESSIONS: Final = 1000
"""From so many on it is worth its time: a tenth of that of a diagnosis, where one session has as many commands."""

_TRIM_EVERY_S: Final = 60.0


def keep_freed() -> None:
    """For columns of many commands, which come and go: a quarter of the time of a summary. For the whole process."""
    _core.keep_freed()


def give_back(source: Source) -> None:
    """After a step that made columns of all commands and let go of them; ``source`` has the tables of the trace."""
    if len(source("sessions")) >= _MANY_SESSIONS:
        _core.give_back()


class Trimmer:
    """Gives back what is free every minute, in a process that runs for days.

    Intervals differ in what they take, and each peak leaves the allocator with more in pieces than the one before it.
    """

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def pass_interval(self) -> None:
        """To be called once for each interval, of whatever length."""
        now_s = time.monotonic()
        if now_s - self._last_s >= _TRIM_EVERY_S:
            self._last_s = now_s
            _core.give_back()


@contextmanager
def cycles_freed() -> Iterator[None]:
    """Objects made in it that refer to each other are freed at its end, and no older object is looked at.

    What a diagnosis leaves holds copies of all tables.

    None of them must be looked at before: what survives that is freed much later.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()
