"""Which recoveries are losses of data, and which of ACKs alone.

`senders.recovery_count` and the time breakdown have the same rule.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import all_waits
from iscsitrace.measure.facts import Facts, workloads
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table


def losses(recoveries: Table) -> Table:
    """The recoveries in which data was lost: not all of their retransmissions were unnecessary, or for lost ACKs."""
    return recoveries.select(_is_loss(recoveries))


def _is_loss(recoveries: Table) -> NDArray[Any]:
    is_needed = recoveries.raw("retransmitted_packets") > recoveries.raw("spurious_packets")
    return np.asarray(is_needed & ~known(recoveries, "ack_loss"))


TIMEOUT_NS: Final = 200_000_000
"""Least retransmission time-out of Linux (RFC 6298 says 1 s)."""


def beyond_a_queue(facts: Facts) -> NDArray[Any]:
    """The recoveries of each subject whose losses a full queue does not explain, and the waits that are as long.

    A retransmission time-out passed without an answer, also one of which the tap shows no recovery; or what was lost
    went against the reads or writes, in the direction that has no queue.
    """
    recoveries, places = facts.table("recoveries"), facts.places("recoveries")
    asked = facts.once(workloads)
    # 1 where the data go to the target alone, 0 to the initiator alone, -1 both ways
    ways = np.full(len(facts) + 1, -1)
    ways[asked.numbers] = np.select([asked.words == "write", asked.words == "read"], [1, 0], -1)
    way = ways[places]
    is_against = (way >= 0) & (recoveries.raw("to_target") != way) & recoveries.each(_is_loss)
    is_beyond = (places >= 0) & (is_against | recoveries.each(_is_timeout))
    waits = all_waits.of_parts(facts, "loss_recovery")
    is_long = waits.lengths >= TIMEOUT_NS
    of_each = (np.bincount(each, minlength=len(facts)) for each in (places[is_beyond], waits.place[is_long]))
    return np.asarray(sum(of_each))


def _is_timeout(recoveries: Table) -> NDArray[Any]:
    """Also one that began with a tail loss probe, if that was not answered either: the time-out follows it."""
    took_ns = recoveries.raw("time_last_ns") - recoveries.raw("time_first_ns")
    is_unanswered = (recoveries["cause"] == "tail_probe") & (took_ns >= TIMEOUT_NS)
    return np.asarray(_is_loss(recoveries) & ((recoveries["cause"] == "timeout") | is_unanswered))


def ack_losses(recoveries: Table) -> Table:
    """The recoveries in which ACKs were lost, and no data."""
    return recoveries.select(known(recoveries, "ack_loss"))
