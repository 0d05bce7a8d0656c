"""Support for tests of the lab: root, a raised priority, repeated runs, and a TAP cable without delay or loss."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from iscsitrace.lab.namespaces import Cable

needs_root = pytest.mark.needs_root
"""Marks tests that create network namespaces and run in real time: one at a time, with no other tests beside them."""
needs_peers = pytest.mark.needs_peers
"""Marks tests that start third-party servers on loopback, as root, and measure no time: they run beside others."""

RUNS_MAX = 5
_PRIORITY = 1

Truth = dict[str, Any]


@contextmanager
def going_first() -> Iterator[None]:
    """Programs started in this block get a higher priority, if that is allowed."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(OSError):
        # links go before it in turn
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def judge_run(run: Callable[[], tuple[Truth, Any]], judge: Callable[[Truth, Any], None]) -> None:
    """Makes a real run and passes its truth and results to `judge`, which asserts.

    A failed run is repeated, because a stalled machine changes the delays of its hosts. `judge` is equally strict each
    time, so that a real error fails every time.
    """
    for number in range(RUNS_MAX):
        truth, found = run()
        try:
            judge(truth, found)
        except AssertionError:
            if number == RUNS_MAX - 1:
                raise
        else:
            return


@contextmanager
def plugged_in(cable: Cable) -> Iterator[None]:
    """Moves every frame from one TAP device to the other immediately, while the block runs."""
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
