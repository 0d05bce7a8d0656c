"""Advice that several problems share, with its what-ifs: a higher queue depth, and more connections."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from iscsitrace.findings.finding import Basis
from iscsitrace.fit.gain import OF_A_COMMAND, OF_A_CONNECTION, Change
from iscsitrace.fit.situation import Situation

DEPTHS: Final = (8, 32, 128)
"""Queue depths to try, as programs and drivers offer them: the next one or two above the measured one."""
CONNECTIONS: Final = (2, 4, 8, 16, 32, 64)
"""Multiples of the measured connections to try, as long as each step gains ENOUGH."""
ENOUGH: Final = 1.1
"""Least throughput factor for which doubling the connections is worth it."""

SHARE_PATH: Final = (
    "Spread the load over several connections, each with a separate window and queue: node.session.nr_sessions with "
    "multipath, or one session with several connections (MC/S)."
)
# one text for one remedy, so that an output says it once
RAISE_QUEUE_DEPTH: Final = (
    "Raise the queue depth: more threads or a higher I/O depth in the program, within node.session.queue_depth; for "
    "buffered reads /sys/block/DEVICE/queue/read_ahead_kb."
)


PARALLEL: Final = "if the program issues I/O in parallel"


def next_queue_depth(basis: Basis) -> Iterator[Change]:
    """The next higher queue depth. A target that serves one command at a time gains less."""
    yield from _queue_depths(basis, 1)


def next_queue_depths(basis: Basis) -> Iterator[Change]:
    """The next two higher queue depths."""
    yield from _queue_depths(basis, 2)


def _queue_depths(basis: Basis, count: int) -> Iterator[Change]:
    situation = basis.measured.situation
    for depth in [depth for depth in DEPTHS if depth > situation.setting.queue_depth][:count]:
        yield queue_depth(situation, depth)


def queue_depth(situation: Situation, depth: int) -> Change:
    """So many commands in flight."""
    change = partial(Situation.with_setting, queue_depth=depth)
    return Change(f"queue depth {depth}", change, OF_A_COMMAND, _condition(situation))


def more_connections(basis: Basis) -> Iterator[Change]:
    """Twice the connections, and the most that still gain: each with at least one command in flight."""
    situation = basis.measured.situation
    now, before = situation.setting.connections, situation.throughput()
    numbers: list[int] = []
    for times in CONNECTIONS:
        reached = situation.with_connections(times * now).throughput()
        if reached < ENOUGH * before:
            break
        numbers.append(times * now)
        before = reached
    for number in dict.fromkeys(numbers[:1] + numbers[-1:]):
        change = partial(Situation.with_connections, count=number)
        yield Change(f"{number} connections", change, OF_A_CONNECTION, _condition(situation))


def _condition(situation: Situation) -> str:
    """One command in flight shows no program that has others to issue."""
    return PARALLEL if situation.setting.queue_depth == 1 else ""
