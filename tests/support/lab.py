"""What tests of the lab need: root, a machine that has time for them, and a cable of TAP devices that delays and loses
nothing.
"""

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
"""Of tests that make network namespaces and take real time: they run one at a time, with nothing beside them."""
needs_peers = pytest.mark.needs_peers
"""Of tests that start real targets on loopback, as root, and measure no time: they run beside others."""

RUNS_MAX = 5
_PRIORITY = 1

Truth = dict[str, Any]


@contextmanager
def going_first() -> Iterator[None]:
    """Whatever is started while the block runs goes before the programs of others, where that is allowed."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(OSError):
        # links go before it in turn
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def judge_run(run: Callable[[], tuple[Truth, Any]], judge: Callable[[Truth, Any], None]) -> None:
    """Makes a real run, and has its truth and what else it gave judged; the judge asserts.

    What does not stand is run again, for a machine that halts makes other hosts of those that it runs. A rule that is
    wrong is wrong each time: the judge is as strict with all.
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
