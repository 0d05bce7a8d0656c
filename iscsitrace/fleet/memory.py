"""Memory of a worker during its tasks: what is freed is used again, and what a diagnosis leaves is freed at once."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's mallopt."""
_TRIM_BYTES: Final = 4 << 20
_MMAP_BYTES: Final = 1 << 20
"""Larger arrays go back at once: they are few, and keeping them takes 80 MB more."""


@contextmanager
def freed_kept() -> Iterator[None]:
    """Freed memory is used again, and goes back to the system at the end.

    Dask has workers give each freed array back at once: to get it again takes a fifth of a task's time. Nothing happens
    where the C library is not glibc.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        yield
        return
    library.mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
    library.mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)
    try:
        yield
    finally:
        library.malloc_trim(0)


@contextmanager
def cycles_freed() -> Iterator[None]:
    """Objects made in it that refer to each other are freed at its end, and no older object is looked at.

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
