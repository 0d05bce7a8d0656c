"""What a path does to packets: it drops long ones while smaller ones arrive, or packets overtake each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from iscsitrace.findings.case import Case
from iscsitrace.findings.connection_loss import CONNECTION_LOST
from iscsitrace.findings.failures import NOP_TIMEOUT
from iscsitrace.findings.finding import INTERFACE, WHOLE_HOST, Advice, Explains, Observation, Problem
from iscsitrace.findings.history import Blocked, History
from iscsitrace.findings.loss import LOSS
from iscsitrace.findings.outages import IO_OUTAGE
from iscsitrace.findings.recipes import LAN, WAN
from iscsitrace.findings.transport import CONGESTION_WINDOW_SMALL
from iscsitrace.measure.facts import Array, Facts
from iscsitrace.measure.intervals import joined
from iscsitrace.measure.session import Session, Stretches, frames_in
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital


def _has_blocked(facts: Facts) -> Array:
    return facts.count("senders", lambda senders: known(senders, "blocked_bytes")) > 0


def _blocked(history: History) -> Observation | None:
    if not history.blocked:
        return None
    reports = list(history.rows("icmp_errors").rows())
    found = _by_size(history, reports)
    if not found:
        return None
    to_target = found[0].to_target
    ends = [each for each in history.outages if any(_overlap(each.from_ns, each.to_ns, one) for one in found)]
    spans = joined([*((each.from_ns, each.to_ns) for each in ends), *((one.from_ns, one.to_ns) for one in found)])
    facts = [f"{capital(fact)}." for fact in _facts(history, found, reports)]
    cost_ns = sum(last - first for first, last in spans)
    side = "target" if to_target else "initiator"
    size = f"{min(one.bytes for one in found):,} bytes"
    what = f"segments of {size} to the {side}" if found[0].is_retransmitted else f"{size} to the {side}"
    text = f"{history.label}: {what} did not get through for {wording.time(cost_ns)}, but smaller packets did"
    return Observation(
        " ".join((f"MTU problem of {text}.", "The path MTU is too small, or a hop drops long packets.", *facts)),
        [one.frame for one in found],
        float(cost_ns),
        spans=spans,
        is_final=any(not each.is_over for each in ends),
        points_to=_side(reports, to_target=to_target),
    )


def _side(reports: Sequence[dict[str, Any]], *, to_target: bool) -> str:
    """Whose side it points to: smaller packets passed both hosts."""
    for row in reports:
        if row["kind"] == "too_big" and row["to_target"] == to_target:
            return f"the path: {row['reporter_address']} reports it"
    return "the path"


def _by_size(history: History, reports: Sequence[dict[str, Any]]) -> list[Blocked]:
    """The blocked segments of one direction, if their size explains them; empty else.

    It does where a retransmission was lost after smaller packets had passed, where a router reports it, or where it
    happens again on the next connection to segments larger than any that arrives.
    """
    for to_target in (False, True):
        found = [one for one in history.blocked if one.to_target == to_target]
        told = {row["connection"] for row in reports if row["kind"] == "too_big" and row["to_target"] == to_target}
        again = [one for one in found if one.bytes > one.arrived_bytes]
        if any(one.is_by_size or one.connection in told for one in found) or len(again) > 1:
            return found
    return []


def _overlap(from_ns: int, to_ns: int, one: Blocked) -> bool:
    return from_ns <= one.to_ns and one.from_ns <= to_ns


def _facts(history: History, found: Sequence[Blocked], reports: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What else the packets show."""
    to_target, least = found[0].to_target, min(one.bytes for one in found)
    told = [row for row in reports if row["kind"] == "too_big" and row["to_target"] == to_target]
    if told:
        mtu = told[0]["mtu_bytes"]
        yield f"{told[0]['reporter_address']} reports an MTU" + (f" of {mtu}" if mtu else " that is too small")
    else:
        yield "no ICMP message reported it"
    repeated = sum(one.retransmissions for one in found)
    connections = wording.count(len(found), "connection")
    if repeated:
        yield f"TCP retransmitted them at least {repeated} times on {connections}"
    else:
        tap = history.source.tap_of(found[0].connection, to_target=True)
        yield f"the {tap} never saw these bytes on {connections}, and the receiver never acknowledged them"
    if all(one.arrived_bytes < least for one in found):
        largest = max(one.arrived_bytes for one in found)
        yield f"the largest segment that got through had {wording.count(largest, 'byte')}"
    numbers = {one.connection for one in found}
    rows = [row for row in history.story.connections if row["connection"] in numbers]
    sizes = [{row[f"mss_bytes_to_{side}"] for row in rows} for side in ("initiator", "target")]
    if all(len(each) == 1 and None not in each for each in sizes):
        (of_target,), (of_initiator,) = sizes
        if of_target == of_initiator:
            yield f"both sides announced an MSS of {of_target}"
        else:
            yield f"the initiator announced an MSS of {of_initiator}, the target one of {of_target}"


PATH_MTU: Final = Problem(
    name="path_mtu",
    scope="story",
    meaning="Long packets are lost on the path and short ones are not: a hop has a smaller MTU than the hosts, "
    "and its ICMP "
    "messages are lost, too. Logins and small commands work, the first large read or write hangs.",
    condition="A segment is blocked for a second or more while smaller packets pass (iscsitrace docs method 5), "
    "and its "
    "size explains it: a retransmission was lost after a smaller packet had passed, ICMP reports the MTU, or it "
    "happens on a second connection to segments larger than any that arrives. Else it may be a black-out.",
    evidence="The first retransmission of each, or the small packet that passed. The cost is the time in which it was "
    "blocked, with the outages that it caused.",
    example="MTU problem of sessions 0 to 2: 15,928 bytes to the initiator did not get through for 26.2 s, but smaller "
    "packets did. The path MTU is too small, or a hop drops long packets. No ICMP message reported it.",
    # long packets only, or all
    shown_by=f"read {LAN} --fault mtu-hole,for=20s",
    near_miss=f"read {LAN} --fault black-out,for=3s",
    severity="error",
    rank="failure",
    accounts_for=(IO_OUTAGE, CONNECTION_LOST, NOP_TIMEOUT, LOSS),
    advice=(
        Advice(
            "Find the hop: ping with DF and the full size, from both sides. Linux: ping -M do -s 8972 ADDRESS "
            "(1472 for an MTU of 1500); ESXi: vmkping -d -s 8972; Windows: ping -f -l 8972."
        ),
        Advice(
            "Set the same MTU on both hosts and on every switch port, bond, VLAN and tunnel between them; jumbo frames "
            "need all of them. Else use an MTU of 1500 on both hosts (ip link set dev DEVICE mtu 1500).",
            touches=INTERFACE,
        ),
        Advice(
            "Let ICMP type 3 code 4 (ICMPv6 type 2) pass every firewall. On Linux net.ipv4.tcp_mtu_probing = 1 "
            "finds the size without ICMP.",
            touches=WHOLE_HOST,
        ),
    ),
    where=_has_blocked,
    tell=_blocked,
)


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
        ". ".join(map(capital, parts)) + ".",
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
