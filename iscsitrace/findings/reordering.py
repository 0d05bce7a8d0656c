"""Reordering: packets that overtake each other, and what TCP did about it for nothing."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.case import Case
from iscsitrace.findings.finding import WHOLE_HOST, Advice, Explains, Observation, Problem
from iscsitrace.findings.recipes import WAN
from iscsitrace.findings.transport import CONGESTION_WINDOW_SMALL
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.session import Session, Stretches, frames_in
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]

REORDERED_SHARE: Final = 0.01
"""Least share of a direction's packets out of order. Below, and without a cost, reordering does no harm."""

REORDERED_COUNT: Final = 20
"""Least number of them: a share of fewer is chance."""


def _needless(subject: Session, *, to_target: bool) -> tuple[Table, Array]:
    """The recoveries of a direction, and which of them reordering caused: duplicate ACKs began them, nothing was lost.

    After a timer the packets were late, not out of order. Where the cause is unknown, late packets would look the same,
    unless the tap saw some out of order.
    """
    recoveries = subject.tables["recoveries"]
    recoveries = recoveries.select(recoveries.raw("to_target") == to_target)
    causes = ("fast", "unknown") if _late(subject, to_target=to_target) else ("fast",)
    packets = recoveries.raw("retransmitted_packets")
    # where ACKs were lost a timer fired, too, whatever began the recovery
    is_late = np.isin(recoveries["cause"].astype(str), causes) & ~known(recoveries, "ack_loss")
    return recoveries, np.asarray(is_late & (packets > 0) & (recoveries.raw("spurious_packets") >= packets))


def _late(subject: Session, *, to_target: bool) -> int:
    """The packets of a direction that arrived out of order at the tap."""
    way = "target" if to_target else "initiator"
    return sum(row[f"reordered_packets_to_{way}"] for row in subject.connections)


def _waits(subject: Session, recoveries: Table, is_needless: Array) -> Stretches:
    """The waits for a congestion window whose last reduction was needless."""
    waits = subject.stretches("congestion_window")
    if not len(waits.starts) or not is_needless.any():
        return waits.where(np.zeros(len(waits.starts), dtype=bool))
    order = np.argsort(recoveries.raw("time_first_ns"), kind="stable")
    before = np.searchsorted(recoveries.raw("time_first_ns")[order], waits.ends) - 1
    return waits.where((before >= 0) & is_needless[order][before.clip(min=0)])


def _may_be_reordered(facts: Facts) -> Array:
    late = facts.total("connections", "reordered_packets_to_target", "reordered_packets_to_initiator")
    return (late > 0) | (facts.count("recoveries") > 0)


def _reordered(case: Case) -> Observation | None:
    subject = case.subject
    if not len(subject.tables["recoveries"]) and not any(_late(subject, to_target=each) for each in (True, False)):
        return None
    to_target = max((True, False), key=lambda each: _sign(subject, to_target=each))
    way = "target" if to_target else "initiator"
    late = _late(subject, to_target=to_target)
    late_ns = max((row[f"reordered_late_to_{way}_max_ns"] or 0 for row in subject.connections), default=0)
    packets = sum(row[f"packets_to_{way}"] for row in subject.connections)
    recoveries, is_needless = _needless(subject, to_target=to_target)
    waits = _waits(subject, recoveries, is_needless)
    count = int(is_needless.sum())
    is_many = late >= max(REORDERED_COUNT, REORDERED_SHARE * packets)
    if not is_many and not count:
        return None
    repeated = int(recoveries.raw("retransmitted_packets")[is_needless].sum())
    if late:
        by = f", at most {wording.time(late_ns)} late" if late_ns else ""
        parts = [f"the path reorders packets: {late:,} of {packets:,} to the {way} arrived out of order{by}"]
    else:
        # counts of reordered packets are those of the tap nearest to the initiator, for both directions
        tap = case.groups.tap_of(subject.connections[0]["connection"], to_target=True)
        parts = [f"the path to the {way} reorders packets beyond the {tap}"]
    if count:
        again = wording.count(repeated, "packet")
        parts.append(f"TCP retransmitted {again} without need, and slowed down {wording.times(count)} because of them")
    else:
        parts.append("TCP retransmitted nothing because of it")
    longest = np.flatnonzero(is_needless)[:3]
    return Observation(
        ". ".join(part[:1].upper() + part[1:] for part in parts) + ".",
        frames_in(recoveries, longest, "frame_first", "frame_last") if count else subject.evidence(waits),
        waits.total_ns,
    )


def _sign(subject: Session, *, to_target: bool) -> tuple[int, int]:
    """How much reordering a direction has: needless recoveries, then packets out of order."""
    _, is_needless = _needless(subject, to_target=to_target)
    return int(is_needless.sum()), _late(subject, to_target=to_target)


REORDERING: Final = Problem(
    name="reordering",
    meaning="Packets overtake each other on the path. TCP takes three later packets as a sign of loss: it retransmits "
    "a packet that was only late, and reduces its congestion window.",
    condition="Recoveries after duplicate ACKs in which every retransmission was unnecessary (D-SACK or Eifel), or at "
    f"least {wording.percent(REORDERED_SHARE)} of the packets of a direction, and {REORDERED_COUNT}, out of order at "
    "the tap.",
    evidence="First and last frames of needless recoveries. The share is the time spent waiting for a congestion "
    "window whose last reduction was needless.",
    example="The path reorders packets: 575 of 11,603 to the initiator arrived out of order, at most 3.0 ms late. "
    "TCP retransmitted 4 packets without need, and slowed down once because of them.",
    # one packet in twenty 3 ms late, or lost
    shown_by=f"read --block-size 256K --bytes 16M --queue-depth 4 --set reorder=5%,3ms {WAN}",
    near_miss=f"read --block-size 256K --bytes 16M --queue-depth 4 --set to-initiator-loss=1% {WAN}",
    explains=Explains("congestion_window", specificity=1),
    accounts_for=(CONGESTION_WINDOW_SMALL,),
    advice=(
        Advice(
            "Find where packets take several ways: a bond in mode balance-rr (use 802.3ad with layer3+4), per-packet "
            "load balancing of a router or switch, several VPN tunnels, a link with a radio."
        ),
        Advice(
            "On the sender keep net.ipv4.tcp_sack, tcp_dsack and tcp_timestamps at 1, so that Linux undoes needless "
            "reductions, and let net.ipv4.tcp_max_reordering be 300 or more.",
            touches=WHOLE_HOST,
        ),
    ),
    where=_may_be_reordered,
    tell=_reordered,
)
