"""The time in which a host's TCP, not the host, held data back: by the time breakdown at its own tap."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.budget import PARTS
from iscsitrace.analysis.measures.intervals import covered_until
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.tables.numbers import first_rows, order_of
from iscsitrace.tables.partition import Partition
from iscsitrace.tables.table import Table

Array = NDArray[Any]

HELD: Final = ("transfer", "ack_wait", "receive_window", "congestion_window", "send_buffer", "loss_recovery")
"""Parts in which the network, not the host, has the data: it leaves, or its ACKs have not come."""


class Held:
    """The stretches of one capture in which TCP held data, by connection."""

    def __init__(self, budget: Table) -> None:
        """``budget`` is the table of the whole capture."""
        codes = [PARTS.index(part) for part in HELD]
        is_held = known(budget, "connection") & np.isin(budget.raw("part"), codes)
        held = budget.select(is_held)
        self._parts = Partition(held, held.raw("connection"))

    def until(self, connections: Array, times_ns: Array) -> Array:
        """Held time of each connection until each instant on the capture's clock, int64."""
        sums = np.zeros(len(times_ns), dtype=np.int64)
        order = order_of(connections)
        for first, last in pairwise([*first_rows(connections[order]).tolist(), len(order)]):
            at = order[first:last]
            rows = self._parts.rows(int(connections[at[0]]))
            sums[at] = covered_until(rows.raw("time_first_ns"), rows.raw("time_last_ns"), times_ns[at].astype(np.int64))
        return sums
