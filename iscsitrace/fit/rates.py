"""The throughput of cycles with its confidence interval, by batch means.

Cycles that follow each other are not independent: a queue, a window and a host carry over from one to the next. So the
interval does not come from single cycles where there are many, but from batches of consecutive ones (Law, Simulation
Modeling and Analysis, 4th edition, chapter 9).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.fit import robust
from iscsitrace.model.estimate import Estimate

Array = NDArray[Any]

BATCHES: Final = 20
"""Most batches: with more of them, each is so short that it depends on the one before."""


def throughput(bytes_of_each: Array, lengths_ns: Array) -> Estimate:
    """All bytes / all time, in bytes/s, with a 95 % confidence interval.

    ``bytes_of_each`` and ``lengths_ns`` have one value for each cycle, in order of time; there are at least two.
    The rate is a ratio of two sums: its standard error is that of bytes - rate * time over the batches.
    """
    count = min(len(lengths_ns), BATCHES)
    amounts = np.array([float(each.sum()) for each in np.array_split(bytes_of_each, count)])
    times = np.array([float(each.sum()) for each in np.array_split(lengths_ns, count)])
    rate = float(amounts.sum() / times.sum())
    off = amounts - rate * times
    half = robust.student_975(count - 1) * float(np.sqrt(np.sum(off**2) * count / (count - 1)) / times.sum())
    return Estimate(rate * 1e9, max(0.0, rate - half) * 1e9, (rate + half) * 1e9, "packets")
