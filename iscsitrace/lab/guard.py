"""Removes what a killed process leaves behind, as soon as it is gone.

``python -m iscsitrace.lab.guard PREFIX`` waits until its standard input ends, which the process of that prefix
(`lab.own_process`) holds. A process that ends in order has removed everything itself, and says so by a byte.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from iscsitrace.lab import namespaces, own_process, peers

_IN_ORDER = b"."
_LIMIT_S = 5
_LOOK_S = 0.05


@contextmanager
def guarding() -> Iterator[None]:
    """A guard of this process while the block runs."""
    command = [sys.executable, "-P", "-m", "iscsitrace.lab.guard", own_process.prefix()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        with own_process.deferred():
            process.communicate(_IN_ORDER)


def main() -> None:
    """The guard."""
    if sys.stdin.buffer.read():
        return
    end = time.monotonic() + _LIMIT_S
    while not own_process.is_left_over(sys.argv[1]):
        if time.monotonic() > end:
            return
        time.sleep(_LOOK_S)
    namespaces.remove_leftovers()
    peers.remove_leftovers()


if __name__ == "__main__":
    main()
