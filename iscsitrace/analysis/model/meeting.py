"""Tasks that take unequal times meet on the line: how many of them get done in a while, where each waits for others.

Tasks of equal times fall into step, and fill a line without a gap; those whose target takes now longer, now shorter
come together by chance. They are counted one after the other, each beside the queue that those before it make (mean
value analysis of a closed queue), and of the task that is on the line already half is left.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def tasks_per_ns(count: int, period_ns: float, line_ns: float) -> float:
    """Of so many tasks outstanding, each of which takes ``period_ns`` alone, ``line_ns`` of it on the line."""
    waiting = busy = rate = 0.0
    for number in range(1, count + 1):
        on_line_ns = line_ns * (1 + waiting - busy / 2)
        rate = number / (period_ns - line_ns + on_line_ns)
        waiting, busy = rate * on_line_ns, min(1.0, rate * line_ns)
    return min(rate, 1 / line_ns) if line_ns else rate
