"""What a diagnosis leaves is freed at once: its objects refer to each other, and hold copies of all tables."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
