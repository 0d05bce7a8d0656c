"""Which recoveries are losses of data, and which of ACKs alone.

`senders.recovery_count` and the time breakdown have the same rule.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import all_waits, line
from iscsitrace.measure.facts import Facts, workloads
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table


def losses(recoveries: Table) -> Table:
    """The recoveries in which data was lost: not all of their retransmissions were unnecessary, or for lost ACKs."""
    return recoveries.select(is_loss(recoveries))


def is_loss(recoveries: Table) -> NDArray[Any]:
    """Which these are."""
    is_needed = recoveries.raw("retransmitted_packets") > recoveries.raw("spurious_packets")
    return np.asarray(is_needed & ~known(recoveries, "ack_loss"))


TIMEOUT_NS: Final = 200_000_000
"""Least retransmission time-out of Linux (RFC 6298 says 1 s)."""


_TAIL_PROBE: Final = CATEGORIES["retransmission_cause"].index("tail_probe")

BEYOND_SHARE: Final = 0.05
"""Least share of the I/O time that waits take which a queue does not explain."""


def are_beyond_a_queue(facts: Facts) -> NDArray[Any]:
    """Whether each subject has losses that a full queue does not explain.

    The path was down; or what was lost went against the reads or writes, in the direction that has no queue, and was
    more than a probe whose answer came within a round trip through the queue; or I/O waited longer than an overflow of
    the queue makes it wait, again and again or for long.
    """
    recoveries, places = facts.table("recoveries"), facts.places("recoveries")
    asked = facts.once(workloads)
    # 1 where the data go to the target alone, 0 to the initiator alone, -1 both ways
    ways = np.full(len(facts) + 1, -1)
    ways[asked.numbers] = np.select([asked.words == "write", asked.words == "read"], [1, 0], -1)
    way = ways[places]
    is_against = (way >= 0) & (recoveries.raw("to_target") != way) & recoveries.each(is_loss)
    rows = facts.once(line.loaded)
    round_trip_ns, longest_ns = (
        np.append(facts.table("senders").raw(f"rtt_load_{name}_ns"), 0)[rows] for name in ("median", "p95")
    )
    # the ACK of the first copy took its time in the queue
    is_probe = (recoveries.raw("cause") == _TAIL_PROBE) & (recoveries.raw("retransmitted_packets") == 1)
    lasted_ns = recoveries.raw("time_last_ns") - recoveries.raw("time_first_ns")
    is_probe &= known(recoveries, "time_last_ns") & (lasted_ns <= np.append(longest_ns, 0)[places])
    is_against &= ~is_probe
    is_beyond = (places >= 0) & (is_against | known(recoveries, "black_out_first_ns"))
    beyond = np.bincount(places[is_beyond], minlength=len(facts))
    waits = all_waits.of_parts(facts, "loss_recovery")
    # a retransmission is lost again, or a time-out passes: two round trips through the queue
    is_long = waits.lengths >= np.maximum(TIMEOUT_NS, 2 * round_trip_ns)[waits.place]
    long_ns = waits.where(is_long).sums_ns(facts)
    return np.asarray((beyond > 0) | (long_ns > BEYOND_SHARE * facts.jobs_ns))


def ack_losses(recoveries: Table) -> Table:
    """The recoveries in which ACKs were lost, and no data."""
    return recoveries.select(known(recoveries, "ack_loss"))
