"""What a command does with its process. Where it is the whole process, it may give up rights for good: a test or a
notebook is not. Ctrl-C and SIGTERM stop a run in order, the second of them at once. With ``--max-memory`` a command
that would need more ends with one line, before the machine swaps.

While captures are read, the resident memory is looked at several times a second. After that the system refuses more:
NumPy then raises MemoryError. The limit is for the memory of the process itself, and holds within 10 %. Program code
and mapped captures come on top, up to 40 MiB: the kernel can read them from their files again, so they never make a
machine swap.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from iscsitrace.cli.units import Size
from iscsitrace.errors import MemoryShort
from iscsitrace.wording.amounts import size

_CONFINED: Final = "iscsitrace.is_confined"
_WRITTEN: Final = "iscsitrace.written"


def is_own_process() -> bool:
    """Whether the command was started as a process, not called by other Python code."""
    return bool(getattr(click.get_current_context().find_root().command, "is_process", False))


def may_write(folder: Path) -> None:
    """The command goes on to write beneath this folder after :func:`confine`."""
    click.get_current_context().meta.setdefault(_WRITTEN, []).append(folder)


def confine(written: Iterable[Path]) -> None:
    """Gives up what a command does not need that reads captures and writes beneath these paths: capabilities, programs,
    other folders, TCP. Only the first call counts, and only in a process of its own; an old kernel has less to refuse.
    """
    known = click.get_current_context().meta
    if is_own_process() and not known.get(_CONFINED):
        known[_CONFINED] = True
        from iscsitrace.recording import capture

        capture.confine([*written, *known.get(_WRITTEN, ())])


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


_PAGES: Final = Path("/proc/self/statm")
INSTEAD: Final = (
    "read a part of it (--from, --to, -c, -f), or write the rows to files: iscsitrace export --format parquet "
    "--max-memory, iscsitrace fleet run"
)


_LEAST_BYTES: Final = 128 << 20
"""Python and its libraries take up to half of it."""


class MemorySize(Size):
    """A size that is enough to start with."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The size in bytes."""
        found = int(super().convert(value, param, ctx))
        if found < _LEAST_BYTES:
            self.fail(f"{value} is less than {size(_LEAST_BYTES)}", param, ctx)
        return found


class MemoryLimit:
    """At most so many bytes of memory for this process."""

    def __init__(self, limit_bytes: int, instead: str = INSTEAD) -> None:
        """``instead`` is what to do where it is exceeded."""
        self._limit_bytes = limit_bytes
        self._instead = instead

    def check(self, bytes_done: int, bytes_total: int | None) -> None:
        """MemoryShort if more is resident, with the part of the input that was read until then."""
        if resident_bytes() <= self._limit_bytes:
            return
        read = f" after {bytes_done / bytes_total:.0%} of the input" if bytes_total and bytes_done < bytes_total else ""
        raise MemoryShort(f"more than --max-memory {size(self._limit_bytes)} is needed{read}: {self._instead}")

    def hold(self) -> None:
        """Let the system refuse more than the limit from now on. Only Linux does."""
        if not _PAGES.exists():
            return
        import resource

        # memory that was freed, and stacks of threads, are data of the process and not resident
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        spare_bytes = max(_statm(5) - peak_bytes, 0)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        with suppress(ValueError):  # a hard limit below it holds anyway
            resource.setrlimit(resource.RLIMIT_DATA, (self._limit_bytes + spare_bytes, hard))


def resident_bytes() -> int:
    """Memory of this process that is resident, without mapped captures; elsewhere than on Linux its peak."""
    if _PAGES.exists():
        return _statm(1) - _statm(2)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def _statm(place: int) -> int:
    """One of the amounts of proc(5), statm: 1 resident, 2 shared, 5 data and stacks; in bytes."""
    return int(_PAGES.read_text().split()[place]) * os.sysconf("SC_PAGE_SIZE")
