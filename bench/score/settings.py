"""Settings drawn by a seed: paths, hosts and workloads that nobody chose. This file runs nothing."""

from __future__ import annotations

import random
from typing import Final

from bench.budget.cases import LARGE_WINDOW_BYTES, MS_NS, SEND_BUFFER_BYTES, Case

COUNT: Final = 200
_SEED: Final = 40
_KIB, _MIB = 1 << 10, 1 << 20
_FRAME_BYTES: Final = 1514
_QUEUES_MS: Final = {"none": 0, "short": 20, "long": 2_000}
"""How long the queue of a line takes to empty; none is a few packets, for the bursts of a sender."""
_LEAST_QUEUE_PACKETS: Final = 4
_MOST_BYTES, _MOST_COMMANDS, _LEAST_COMMANDS = 12 * _MIB, 400, 8
_LONGEST_S: Final = 3
"""How long a line is busy at most."""


def of_number(number: int) -> Case:
    """The setting with this number, from 0: its name is its own."""
    chance = random.Random(_SEED * COUNT + number)
    delay_ms = round(10 ** chance.uniform(-0.5, 1.7), 2)
    rate_bps = round(10 ** chance.uniform(1, 3)) * 1_000_000
    queue = chance.choice(list(_QUEUES_MS))
    operation = chance.choice(("read", "read", "write", "write", "mixed"))
    block_bytes = chance.choice((4, 16, 64, 256, 256 if operation == "mixed" else 1024)) * _KIB
    most_bytes = min(_MOST_BYTES, _MOST_COMMANDS * block_bytes, _LONGEST_S * rate_bps // 8)
    # the smaller of two limits hides the other
    small = chance.choice(("window", "window", "buffer", ""))
    small_bytes = chance.choice((16, 64, 256)) * _KIB
    has_rounds = operation == "write" and (block_bytes >= _MIB or chance.random() < 0.4)
    return Case(
        f"{number:03} {queue} queue",
        operation,
        delay_ms,
        chance.choice((1, 1, 2, 4, 8, 32)),
        block_bytes,
        loss=chance.choice((0, 0, 0, 0.0001, 0.001, 0.01)),
        window_bytes=small_bytes if small == "window" else LARGE_WINDOW_BYTES,
        send_buffer_bytes=small_bytes if small == "buffer" else SEND_BUFFER_BYTES,
        congestion_control=chance.choice(("reno", "cubic")),
        queue_packets=max(_LEAST_QUEUE_PACKETS, rate_bps * _QUEUES_MS[queue] // 8_000 // _FRAME_BYTES),
        service_ns=_rarely(chance, 30),
        think_ns=_rarely(chance, 50),
        initiator_host_ns=_rarely(chance, 5),
        burst_bytes=chance.choice((64, 256)) * _KIB if has_rounds else None,
        rate_bps=rate_bps,
        total_bytes=max(_LEAST_COMMANDS, most_bytes // block_bytes) * block_bytes,
    )


def _rarely(chance: random.Random, most_ms: float) -> int:
    """A time up to this one for a fifth of the settings, else none."""
    return round(chance.uniform(0.1, most_ms) * MS_NS) * (chance.random() < 1 / 5)
