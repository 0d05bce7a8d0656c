"""Which recoveries are losses of data, and which of ACKs alone.

`senders.recovery_count` and the time breakdown have the same rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.facts import Facts
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table


def losses(recoveries: Table) -> Table:
    """The recoveries in which data was lost: not all of their retransmissions were unnecessary, or for lost ACKs."""
    return recoveries.select(_is_loss(recoveries))


def _is_loss(recoveries: Table) -> NDArray[Any]:
    is_needed = recoveries.raw("retransmitted_packets") > recoveries.raw("spurious_packets")
    return np.asarray(is_needed & ~known(recoveries, "ack_loss"))


def timeouts(facts: Facts) -> NDArray[Any]:
    """The retransmission time-outs of each subject that losses of data caused."""
    return facts.count("recoveries", _is_timeout)


def _is_timeout(recoveries: Table) -> NDArray[Any]:
    return np.asarray(_is_loss(recoveries) & (recoveries["cause"] == "timeout"))


def ack_losses(recoveries: Table) -> Table:
    """The recoveries in which ACKs were lost, and no data."""
    return recoveries.select(known(recoveries, "ack_loss"))
