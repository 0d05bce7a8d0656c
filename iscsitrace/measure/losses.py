"""Which recoveries are losses of data, and which of ACKs alone.

`senders.recovery_count` and the time breakdown have the same rule.
"""

from __future__ import annotations

from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table


def losses(recoveries: Table) -> Table:
    """The recoveries in which data was lost: not all of their retransmissions were unnecessary, or for lost ACKs."""
    is_needed = recoveries.raw("retransmitted_packets") > recoveries.raw("spurious_packets")
    return recoveries.select(is_needed & ~known(recoveries, "ack_loss"))


def ack_losses(recoveries: Table) -> Table:
    """The recoveries in which ACKs were lost, and no data."""
    return recoveries.select(known(recoveries, "ack_loss"))
