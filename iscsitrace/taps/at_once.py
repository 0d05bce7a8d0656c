"""Captures read at the same time, one in each thread: a pass leaves the interpreter to others while it runs.

The caller's thread reports the progress of all of them, and ends all at Ctrl-C, or if one fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Any, Final

from iscsitrace.tables.trace import Source, TraceTables, read

Progress = Callable[[int, int | None], None]

_REPORT_EVERY_S: Final = 0.1


class _EndedEarly(Exception):
    """Ends a pass whose result nobody wants any more."""


def read_each(
    groups: Sequence[Sequence[Source]], *, progress: Progress | None = None, **options: Any
) -> list[TraceTables]:
    """Reads each group of sources, as :func:`iscsitrace.read` does, into a trace of its own.

    Files are read at the same time, as many as there are processors. Standard input and objects in memory are read one
    after another by the caller's thread: they may be the same one, and only that thread sees Ctrl-C while they wait.
    ``progress`` has the bytes of all. Raises what ``read`` raises, for the first group that fails.
    """
    most = min(len(groups), os.cpu_count() or 1)
    if most < 2 or not all(_is_file(source) for group in groups for source in group):
        return [read(*group, progress=progress, **options) for group in groups]
    reached: list[tuple[int, int | None]] = [(0, None)] * len(groups)
    is_over = Event()

    def read_one(place: int) -> TraceTables:
        def note(bytes_done: int, bytes_total: int | None) -> None:
            if is_over.is_set():
                raise _EndedEarly
            reached[place] = bytes_done, bytes_total

        return read(*groups[place], progress=note, **options)

    with ThreadPoolExecutor(most) as pool:
        passes = [pool.submit(read_one, place) for place in range(len(groups))]
        try:
            _wait(passes, lambda: _tell(progress, reached))
        finally:
            is_over.set()
            for each in passes:
                each.cancel()
    failures = (each.exception() for each in passes if not each.cancelled())
    for failure in failures:
        if failure is not None and not isinstance(failure, _EndedEarly):
            raise failure
    return [each.result() for each in passes]


def _is_file(source: Source) -> bool:
    """Whether a source is a path, not standard input or an object in memory."""
    return isinstance(source, (str, os.PathLike)) and source != "-"


def _wait(passes: Sequence[Future[TraceTables]], tell: Callable[[], None]) -> None:
    """Until all are done, or one has failed."""
    running = set(passes)
    while running:
        done, running = wait(running, timeout=_REPORT_EVERY_S, return_when=FIRST_EXCEPTION)
        tell()
        if any(each.exception() is not None for each in done):
            return


def _tell(progress: Progress | None, reached: Sequence[tuple[int, int | None]]) -> None:
    bytes_done = sum(done for done, _ in reached)
    if progress is not None and bytes_done:
        known = [total for _, total in reached if total is not None]
        progress(bytes_done, sum(known) if len(known) == len(reached) else None)
