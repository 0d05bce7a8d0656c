"""What each connection carries in the steady cycles of its session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.fit import rates
from iscsitrace.analysis.fit.points import OfConnection
from iscsitrace.analysis.measures import budget
from iscsitrace.analysis.session.session import Session
from iscsitrace.analysis.session.spans import Commands, Spans

Array = NDArray[Any]

_TRANSFER: Final = budget.PARTS.index("transfer")


def of_spans(commands: Commands, spans: Spans, members: Mapping[int, Session]) -> Iterator[OfConnection]:
    """Throughput and idle fraction of each connection that carried commands of these spans, by number.

    ``members`` are the connections of the trace, each with its own time breakdown.
    """
    lengths = spans.ends - spans.starts
    connection = commands.table.raw("connection")
    for number in np.unique(connection).tolist():
        sums = np.concatenate([[0], np.cumsum(np.where(connection == number, commands.bytes, 0))])
        carried = sums[spans.last] - sums[spans.first]
        if carried.any():
            own = budget.of_cycles(members[number].tables["budget"], spans.starts, spans.ends)
            has_own = bool(own.any())
            idle = 1 - float(own[:, _TRANSFER].sum() / lengths.sum()) if has_own else None
            yield OfConnection(number, rates.throughput(carried, lengths), idle)
