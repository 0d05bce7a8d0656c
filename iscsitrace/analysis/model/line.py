"""When the bursts of a block leave the sender's line, one behind the other, and when each next one is asked for.

```text
  line     |first|      |b1|      |b2|             MaxOutstandingR2T=1: a round trip between any two
  line     |first|      |b1|b2|   |b3|b4|          2: the second goes while the first is on its way
```

Several targets of a mirror share the line: what is ready first goes first, and nothing overtakes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Burst:
    """Bytes that go in one piece, if windows allow."""

    line_ns: float
    """What the line takes for them."""
    stall_ns: float
    """How much longer they take for windows that wait; the line is free meanwhile."""


@dataclass(frozen=True)
class Flow:
    """One block to one target."""

    first: Burst
    """Goes with the command."""
    solicited: Sequence[Burst]
    round_trip_ns: float
    """From the end of a burst to the R2T that answers it."""
    outstanding: int
    """MaxOutstandingR2T."""


def ends_ns(flows: Sequence[Flow]) -> list[float]:
    """When the last burst of each flow has left the line, after all began at once."""
    ends = [0.0] * len(flows)
    free_ns = 0.0
    # when it is ready, in which order it was asked for, whose it is, which it is: 0 is the first
    ready = [(0.0, order, order, 0) for order in range(len(flows))]
    order = len(flows)
    while ready:
        ready_ns, _, number, place = heapq.heappop(ready)
        flow = flows[number]
        burst = flow.solicited[place - 1] if place else flow.first
        free_ns = max(ready_ns, free_ns) + burst.line_ns
        end_ns = free_ns + burst.stall_ns
        ends[number] = max(ends[number], end_ns)
        asked = range(1, flow.outstanding + 1) if place == 0 else (place + flow.outstanding,)
        for each in asked:
            if each <= len(flow.solicited):
                heapq.heappush(ready, (end_ns + flow.round_trip_ns, order, number, each))
                order += 1
    return ends
