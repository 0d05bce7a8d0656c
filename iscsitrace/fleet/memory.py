"""Memory of a worker during its tasks: what is freed is used again."""

from __future__ import annotations

import ctypes
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
