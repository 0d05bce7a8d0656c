"""Advice that several problems share: more tasks outstanding, and more connections, with what each would win."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from iscsitrace.analysis.findings.finding import Basis, Change
from iscsitrace.analysis.session.situation import Situation
from iscsitrace.wording import amounts as wording

DEPTHS: Final = (8, 32, 128)
"""Queue depths to try, as programs and drivers have them: the next one or two."""
CONNECTIONS: Final = (2, 4, 8, 16, 32, 64)
"""How many times as many connections to try, as long as each step wins ENOUGH."""
ENOUGH: Final = 1.1
"""So many times the throughput is worth twice the connections."""

SHARE_PATH: Final = (
    "Share the path over several connections, each with windows and losses of its own: node.session.nr_sessions with "
    "multipath, or a session of several connections (MC/S)."
)


def next_queue_depth(basis: Basis) -> Iterator[Change]:
    """The next queue depth; of a target that serves one task after another less is to be won."""
    yield from _queue_depths(basis, 1)


def next_queue_depths(basis: Basis) -> Iterator[Change]:
    """The next two."""
    yield from _queue_depths(basis, 2)


def _queue_depths(basis: Basis, count: int) -> Iterator[Change]:
    for depth in [depth for depth in DEPTHS if depth > basis.measured.situation.setting.queue_depth][:count]:
        yield Change(f"queue depth {depth}", partial(Situation.with_setting, queue_depth=depth))


def more_connections(basis: Basis) -> Iterator[Change]:
    """Twice as many connections, and as many as win something: each with one task at least."""
    situation = basis.measured.situation
    now, before = situation.setting.connections, situation.throughput()
    numbers = []
    for times in CONNECTIONS:
        reached = situation.with_connections(times * now).throughput()
        if reached < ENOUGH * before:
            break
        numbers.append((times * now, reached))
        before = reached
    for number, reached in dict.fromkeys(numbers[:1] + numbers[-1:]):
        rate = wording.rate(basis.measured.throughput_bytes_per_s * reached / situation.throughput())
        yield Change(f"{number} connections ({rate})", partial(Situation.with_connections, count=number))
