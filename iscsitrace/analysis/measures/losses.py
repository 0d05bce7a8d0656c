"""Which recoveries are losses: those in which something was lost.

`senders.recovery_count` and the time breakdown have the same rule.
"""

from __future__ import annotations

from iscsitrace.tables.table import Table


def losses(recoveries: Table) -> Table:
    """The recoveries that are losses: not all of their retransmissions were unnecessary."""
    return recoveries.select(recoveries.raw("retransmitted_packets") > recoveries.raw("spurious_packets"))
