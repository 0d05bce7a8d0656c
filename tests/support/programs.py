"""Programs that a test starts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def running(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Waits for a program, and kills it if the block fails: many of them have no end of their own."""
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
