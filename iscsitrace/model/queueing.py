"""Queueing by chance: commands whose service takes unequal times meet on the line that they share.

Commands of equal times fall into step, and fill a line without a gap. Where the target takes now more and now less for
a command, they come together by chance. The pipeline follows them one by one, with service times drawn evenly; without
following them, mean value analysis of a closed queue counts how many get done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Final

import numpy as np

UNEVEN: Final = 0.25
"""Service times that scatter by this share of a block's time on the line put commands out of step."""
_SEED: Final = 1


@dataclass(frozen=True)
class Service:
    """What neither path nor line explains of a command."""

    mean_ns: float = 0.0
    spread_ns: float = 0.0
    """On either side of the mean."""

    def drawn(self) -> Iterator[float]:
        """The service times of one command after the other; the same in every run."""
        if not self.spread_ns:
            yield from repeat(self.mean_ns)
        chance = np.random.default_rng(_SEED)
        while True:
            yield chance.uniform(self.mean_ns - self.spread_ns, self.mean_ns + self.spread_ns)


def is_uneven(deviation_ns: float, line_ns: float) -> bool:
    """Whether service times with this standard deviation put commands out of step; ``line_ns``: a block's line time."""
    return bool(deviation_ns) and deviation_ns >= UNEVEN * line_ns


@lru_cache(maxsize=4096)
def commands_per_ns(count: int, period_ns: float, line_ns: float) -> float:
    """What so many commands in flight get done; alone each takes ``period_ns``, ``line_ns`` of it on the line.

    They are added one after the other, each to the queue that those before it make; of the command that is on the line
    already half is left (mean value analysis).
    """
    waiting = busy = rate = 0.0
    for number in range(1, count + 1):
        on_line_ns = line_ns * (1 + waiting - busy / 2)
        rate = number / (period_ns - line_ns + on_line_ns)
        waiting, busy = rate * on_line_ns, min(1.0, rate * line_ns)
    return min(rate, 1 / line_ns) if line_ns else rate
