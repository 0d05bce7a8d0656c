"""What tests of the lab need: root, and a cable of TAP devices that delays and loses nothing."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from iscsitrace.lab.namespaces import Cable

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("CI") != "true", reason="only root makes network namespaces"
)
"""Tests that need it fail in CI when they are not run as root; they are skipped only on a developer's machine."""


@contextmanager
def plugged_in(cable: Cable) -> Iterator[None]:
    """Moves every frame from one TAP device to the other, as it comes, while the block runs."""
    assert cable.taps is not None
    first_tap, second_tap = cable.taps
    stop_read, stop_write = os.pipe()
    with first_tap.opened() as first, second_tap.opened() as second:

        def move() -> None:
            other = {first: second, second: first}
            waiting = select.poll()
            for descriptor in (first, second, stop_read):
                waiting.register(descriptor, select.POLLIN)
            while True:
                for descriptor, _ in waiting.poll():
                    if descriptor == stop_read:
                        return
                    os.write(other[descriptor], os.read(descriptor, 65_536))

        thread = threading.Thread(target=move)
        thread.start()
        try:
            yield
        finally:
            os.write(stop_write, b"x")
            thread.join()
            os.close(stop_read)
            os.close(stop_write)
